//! Reload: new tables for a running yard. Applied between batches; settle keeps the moves it
//! causes in order, so no frame waits for it and none is lost.

use std::sync::Arc;

use flowyard_flow::table::Wildcard;
use flowyard_frame::{Edit, To};
use flowyard_lb::Service;

use crate::apply::Lists;
use crate::build::{exact, spread, user};
use crate::config::{Config, ConfigError, SteerConfig, list, rule};

/// New contents for the tables of every core.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Reload {
    /// Changes to the user's exact entries.
    pub exact: Vec<Edit>,
    /// The indirection table, by index; empty changes nothing. One of another size than the
    /// running one is filled in as far as it goes, and repeated.
    pub spread: Vec<To>,
    /// The rules, all of them; `None` changes nothing.
    pub rules: Option<Arc<Wildcard>>,
    /// The action lists, all of them; `None` changes nothing.
    pub lists: Option<Arc<Lists>>,
    /// The services of a balancer, all of them; `None` changes nothing. They go to its hub, not to
    /// the cores.
    pub services: Option<Vec<Service>>,
}

impl Config {
    /// What turns the tables of `self`, running, into those of `new`.
    ///
    /// # Errors
    /// When anything but `[[list]]`, `[[service]]` and `[steer]`'s `spread`, `exact` and `rule`
    /// differs: that needs a restart. When the exact table does not take the entries.
    pub fn reload(&self, new: &Self) -> Result<Reload, ConfigError> {
        if let Some(section) = self.unlike(new) {
            let what = format!("{section} cannot change while the yard runs");
            let mend = if section == "[switch]" {
                "restart, or change flows with 'flowyard switch'"
            } else {
                "change [[list]], [[service]], and 'spread', 'exact' and 'rule' in [steer] alone, or restart"
            };
            return Err(new.error_in(section, what, mend));
        }
        user(new)?;
        let (old, new_edits) = (exact(self)?, exact(new)?);
        let key = |edit: &Edit| match edit {
            Edit::Put(key, _) | Edit::Del(key) => *key,
        };
        let gone = old.iter().map(key).filter(|k| !new_edits.iter().any(|edit| key(edit) == *k));
        let fresh = new_edits.iter().filter(|edit| !old.contains(edit)).copied();
        let lists = list::lists(new)?;
        let lists = (lists != list::lists(self)?).then(|| Arc::new(lists));
        // With lists, rules are new too: what was cached of them may name a list by its old number.
        let differ = lists.is_some() || rule::rules(self)? != rule::rules(new)?;
        Ok(Reload {
            exact: gone.map(Edit::Del).chain(fresh).collect(),
            // Unchanged, it stays as it is: entries may have moved off overloaded cores.
            spread: if spread(self) == spread(new) { Vec::new() } else { spread(new) },
            rules: if differ { Some(Arc::new(rule::table(new)?)) } else { None },
            lists,
            services: if self.service == new.service { None } else { Some(new.services()?) },
        })
    }

    /// The first section in which more than the tables differs.
    fn unlike(&self, new: &Self) -> Option<&'static str> {
        let rest = |steer: &SteerConfig| SteerConfig {
            spread: Vec::new(),
            exact: Vec::new(),
            rule: Vec::new(),
            ..steer.clone()
        };
        let differ = [
            ("[yard]", self.yard != new.yard),
            ("[[port]]", self.port != new.port),
            ("[[queue]]", self.queue != new.queue),
            ("[steer]", rest(&self.steer) != rest(&new.steer)),
            ("[learn]", self.learn != new.learn),
            ("[elephants]", self.elephants != new.elephants),
            ("[work]", self.work != new.work),
            ("[balance]", self.balance != new.balance),
            ("[switch]", self.switch != new.switch),
        ];
        differ.into_iter().find(|(_, differs)| *differs).map(|(section, _)| section)
    }
}

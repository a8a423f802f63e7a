//! The secret of hashes: written in the configuration, or drawn at the start.
//!
//! `flowyard run` draws one. Everything else that reads a configuration (simulations, checks, tests) takes
//! the fixed secret, so that equal configurations give equal results.

use flowyard_flow::Secret;
use toml::Spanned;

use super::names::Checked;
use super::{BalanceConfig, Config};

/// Smaller seeds of a cluster are found by trying all of them.
const LEAST: u64 = 1 << 32;

impl Config {
    /// The secret from which the keys of all hashes are derived: that of the seed in `[yard]`, else the one
    /// of [`Config::set_secret`], else the fixed one.
    #[must_use]
    pub fn secret(&self) -> Secret {
        self.yard.seed.map_or(self.secret, Secret::written)
    }

    /// Sets the secret that is used if no seed is written.
    pub const fn set_secret(&mut self, secret: Secret) {
        self.secret = secret;
    }

    /// Takes over the secret of the configuration that is running, for a reload.
    pub const fn keep_secret(&mut self, running: &Self) {
        self.secret = running.secret;
    }

    /// Whether this is a balancer that chooses backends by a seed that is not written.
    #[must_use]
    pub fn chooses_by_drawn_seed(&self) -> bool {
        !self.service.is_empty() && self.yard.seed.is_none() && self.written().is_none()
    }

    /// Whether a seed is written, which is a secret.
    #[must_use]
    pub fn has_written_seed(&self) -> bool {
        self.yard.seed.is_some() || self.written().is_some()
    }

    /// The seed by which backends are chosen: the one in `[balance]`, else that of `[yard]`.
    pub(crate) fn balancer_seed(&self) -> u64 {
        self.written()
            .map_or_else(|| self.secret().key("choice of backends"), |seed| *seed.get_ref())
    }

    fn written(&self) -> Option<&Spanned<u64>> {
        self.balance.as_ref()?.get_ref().seed.as_ref()
    }
}

/// Checks the seed of a cluster.
pub(crate) fn check(config: &Config, balance: &BalanceConfig) -> Checked {
    let at = match &config.cluster {
        Some(cluster) => cluster.span(),
        None if *balance.cluster.get_ref() => balance.cluster.span(),
        None if let Some(sync) = &balance.sync => sync.span(),
        None => return Ok(()),
    };
    let fix = "write one random number below 2^63 on all machines of the cluster, as the output of \
               'echo 0x$(openssl rand -hex 7)', and let only root read the file";
    let Some(seed) = &balance.seed else {
        let what = "the machines of a cluster need a common seed: [balance] has no 'seed'";
        return Err(config.error(at, what, fix));
    };
    if *seed.get_ref() < LEAST {
        let what = "the seed of a cluster is a secret, and this number can be guessed";
        return Err(config.error(seed.span(), what, fix));
    }
    if config.yard.seed == Some(*seed.get_ref()) {
        let what = "the seed of a cluster is also that of [yard], which receive hashes reveal";
        return Err(config.error(seed.span(), what, "remove 'seed' from [yard]"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(yard: &str, balance: &str) -> Result<Config, String> {
        let text = format!(
            "[yard]\n{yard}\n[[port]]\nname = \"net\"\nkind = \"mem\"\nin = \"given\"\n[[queue]]\nname = \"q\"\n\
             order = \"atomic\"\nconsumers = [0]\n[work]\nkind = \"balance\"\n[balance]\n{balance}\n\
             [[service]]\nname = \"web\"\nvip = \"192.0.2.1\"\nproto = \"tcp\"\nport = 80\n\
             mode = \"dsr\"\nbackend = [{{ name = \"a\", addr = \"10.0.0.1\", exit = {{ port = \"net\", next_hop = \"02:00:00:00:00:01\" }} }}]\n"
        );
        Config::parse("y.toml", &text).map_err(|error| error.to_string())
    }

    #[test]
    fn a_written_seed_is_used_whatever_was_drawn() {
        let mut written = config("seed = 9", "").unwrap();
        assert_eq!(written.secret(), Secret::written(9));
        written.set_secret(Secret::drawn([3; 16]));
        assert_eq!((written.secret(), written.balancer_seed()), (Secret::written(9), 9));
        assert!(!written.chooses_by_drawn_seed());
        let plan = written.resolve().unwrap().blueprint;
        assert_eq!(plan.steer.hash_key, flowyard_flow::toeplitz::random_key(9));
        let both = config("seed = 9", "seed = 5").unwrap();
        assert_eq!((both.secret(), both.balancer_seed()), (Secret::written(9), 5));
    }

    #[test]
    fn without_a_seed_a_configuration_is_fixed_until_a_secret_is_set() {
        let mut config = config("", "").unwrap();
        assert_eq!((config.secret(), config.balancer_seed()), (Secret::FIXED, 1));
        assert!(config.chooses_by_drawn_seed());
        let key = config.resolve().unwrap().blueprint.steer.hash_key;
        config.set_secret(Secret::drawn([3; 16]));
        let one = (config.balancer_seed(), config.resolve().unwrap().blueprint.steer.hash_key);
        config.set_secret(Secret::drawn([4; 16]));
        let two = (config.balancer_seed(), config.resolve().unwrap().blueprint.steer.hash_key);
        assert!(one.0 != two.0 && one.1 != two.1 && one.1 != key);
    }

    #[test]
    fn the_seed_of_a_cluster_is_written_long_and_apart() {
        let refused = |yard, balance| config(yard, balance).unwrap_err();
        let long = "seed = 0x12_3456_789a_bcde";
        assert!(refused("", "cluster = true").contains("[balance] has no 'seed'"));
        assert!(refused("seed = 0x123456789abcde", "cluster = true").contains("has no 'seed'"));
        assert!(refused("", "cluster = true\nseed = 7").contains("can be guessed"));
        let same = refused(long, &format!("cluster = true\n{long}"));
        assert!(same.contains("receive hashes reveal"), "{same}");
        assert!(config("", &format!("cluster = true\n{long}")).is_ok());
        assert!(config("", "seed = 7").is_ok(), "machines that are no cluster may repeat results");
    }
}

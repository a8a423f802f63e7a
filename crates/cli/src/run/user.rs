//! The user that a run changes to when its ports and sockets are open.
//!
//! ```text
//!  --user NAME ──> NAME                 --user root ──> root, on purpose
//!  none, started by root ──> flowyard, if the system has this user; otherwise root, with a warning
//!  none, started by another user ──> that user
//! ```
//!
//! What the run needs after the change is checked before anything is opened: folders of captures, which get their names at
//! the end, and files and sockets of the switch, which are opened after the change.

use std::path::{Path, PathBuf};

use flowyard_config::Config;
use flowyard_operate::privilege::{PrivilegeError, User};
use rustix::fs::Access;
use rustix::process::geteuid;

use super::Args;
use crate::stop::{Stop, bad_input, failed};

/// The user of `dist/flowyard.sysusers`. `nobody` would not do: commands of health checks and other programs run as
/// nobody, and processes of one user are not protected from each other.
const OWN: &str = "flowyard";

/// The user that a run changes to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Becomes {
    /// It keeps its user; if that is root, `asked` tells whether this was asked for.
    Same { asked: bool },
    /// It changes to this user; `asked` tells whether the user was named.
    Other { name: String, user: User, asked: bool },
}

/// What the user needs later.
struct Later {
    path: PathBuf,
    access: Access,
    what: String,
    /// Whether the run fails without it.
    is_required: bool,
}

impl Becomes {
    /// The user by the arguments.
    pub(super) fn of(args: &Args) -> Result<Self, Stop> {
        let is_root = geteuid().is_root();
        Self::choose(args.user.as_deref(), is_root, User::look_up).map_err(bad_input)
    }

    fn choose(
        asked: Option<&str>,
        is_root: bool,
        look_up: impl Fn(&str) -> std::io::Result<Option<User>>,
    ) -> Result<Self, PrivilegeError> {
        if let Some(name) = asked {
            let wrong = |source| PrivilegeError::Lookup { name: name.into(), source };
            let user = look_up(name).map_err(wrong)?;
            let user = user.ok_or_else(|| PrivilegeError::User(name.into()))?;
            // A process that takes over is started by one that has changed its user.
            return Ok(match is_root && user.is_root() || !is_root && user.is_own() {
                true => Self::Same { asked: true },
                false => Self::Other { name: name.into(), user, asked: true },
            });
        }
        // Without a user database there is no such user.
        let own = if is_root { look_up(OWN).ok().flatten() } else { None };
        Ok(match own.filter(|user| !user.is_root()) {
            Some(user) => Self::Other { name: OWN.into(), user, asked: false },
            None => Self::Same { asked: false },
        })
    }

    /// Refuses a run whose user will lack the rights that it needs after the change. A configuration that it cannot
    /// read again is reported only, because the run does not need it.
    pub(super) fn check(&self, config: &Config, args: &Args) -> Result<(), Stop> {
        let Self::Other { name, user, asked } = self else { return Ok(()) };
        if !geteuid().is_root() {
            return Ok(()); // it cannot change at all, which is reported later
        }
        let later = later(config, &args.config);
        let paths: Vec<_> = later.iter().map(|need| (need.path.as_path(), need.access)).collect();
        let may = user.may(&paths);
        let may = match may {
            Err(_) if !asked => return Ok(()), // as for giving up privileges
            may => may.map_err(failed("changing the user"))?,
        };
        let fix = match asked {
            true => "give that user the permission, or name another user",
            false => {
                "give that user the permission, or name another user with --user; --user root keeps root"
            }
        };
        for (need, _) in later.into_iter().zip(may).filter(|&(_, may)| !may) {
            let Later { path, what, is_required, .. } = need;
            let path = path.display();
            let said = format!(
                "{path}: the user '{name}', to which this instance changes, cannot {what}; {fix}"
            );
            if is_required {
                return Err(bad_input(said));
            }
            tracing::warn!("{said}");
        }
        Ok(())
    }
}

/// What a run does with files after the change of its user.
fn later(config: &Config, file: &Path) -> Vec<Later> {
    let mut all = vec![Later {
        path: file.into(),
        access: Access::READ_OK,
        what: "read this file, so SIGHUP will be refused".into(),
        is_required: false,
    }];
    let folder = |file: &Path, what: &str| Later {
        path: folder_of(file).into(),
        access: Access::WRITE_OK | Access::EXEC_OK,
        what: format!("create files in this folder, in which {} {what}", file.display()),
        is_required: true,
    };
    let outputs = config.port.iter().filter_map(|port| port.get_ref().output.as_ref());
    all.extend(outputs.map(|output| folder(output.get_ref(), "gets its name when the run ends")));
    if let Some(cluster) = config.cluster() {
        all.push(folder(cluster.state(), "is written when services change"));
        let token = cluster.token_file.as_ref().map(|path| path.get_ref().clone());
        all.extend(token.map(|path| Later {
            path,
            access: Access::READ_OK,
            what: "read this file of [cluster] again, so a new token would not be used".into(),
            is_required: false,
        }));
    }
    let Some(switch) = &config.switch else { return all };
    let switch = switch.get_ref();
    for path in [&switch.certificate, &switch.key, &switch.authority].into_iter().flatten() {
        let what = "read this file of [switch]".into();
        all.push(Later { path: path.clone(), access: Access::READ_OK, what, is_required: true });
    }
    let listens = switch.listen.iter().filter_map(|text| text.get_ref().strip_prefix("punix:"));
    all.extend(listens.map(|path| folder(Path::new(path), "is opened for controllers")));
    all
}

fn folder_of(file: &Path) -> &Path {
    file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_user_is_the_named_one_or_else_flowyard_if_root_starts_it() {
        let root = User::find("root").unwrap();
        let nobody = User::find("nobody").unwrap();
        let with_own = |name: &str| {
            Ok(match name {
                "root" => Some(root),
                "nobody" | "flowyard" => Some(nobody),
                _ => None,
            })
        };
        let without_own = |name: &str| Ok((name == "root").then_some(root));
        let other = |name: &str, asked| Becomes::Other { name: name.into(), user: nobody, asked };
        for (asked, is_root, expected) in [
            (None, true, other("flowyard", false)),
            (None, false, Becomes::Same { asked: false }),
            (Some("nobody"), true, other("nobody", true)),
            (Some("nobody"), false, other("nobody", true)),
            (Some("root"), true, Becomes::Same { asked: true }),
        ] {
            assert_eq!(Becomes::choose(asked, is_root, with_own).unwrap(), expected, "{asked:?}");
        }
        let same = Becomes::Same { asked: false };
        assert_eq!(Becomes::choose(None, true, without_own).unwrap(), same);
        assert_eq!(Becomes::choose(None, true, |_| Ok(Some(root))).unwrap(), same, "uid 0");
        let broken = |_: &str| Err(std::io::Error::other("broken"));
        assert_eq!(Becomes::choose(None, true, broken).unwrap(), same);
        assert!(matches!(
            Becomes::choose(Some("x"), true, broken),
            Err(PrivilegeError::Lookup { .. })
        ));
        assert!(matches!(Becomes::choose(Some("x"), true, with_own), Err(PrivilegeError::User(_))));
    }
}

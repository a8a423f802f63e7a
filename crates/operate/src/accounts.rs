//! Users and groups by name.
//!
//! They are looked up by the C library (getpwnam_r(3), getgrnam_r(3)) and not in /etc/passwd and /etc/group,
//! so that every source in /etc/nsswitch.conf is used: LDAP, SSSD and systemd, too.

use std::io;

use nix::errno::Errno;
use nix::unistd;

/// A user with its primary group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Account {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

/// The user with this name; `None` if there is none.
pub(crate) fn user(name: &str) -> io::Result<Option<Account>> {
    let user = found(unistd::User::from_name(name))?;
    Ok(user.map(|user| Account { uid: user.uid.as_raw(), gid: user.gid.as_raw() }))
}

/// The ID of the group with this name; `None` if there is none.
pub(crate) fn group(name: &str) -> io::Result<Option<u32>> {
    Ok(found(unistd::Group::from_name(name))?.map(|group| group.gid.as_raw()))
}

/// Some sources report a missing name by an error (getpwnam(3), section "Errors").
fn found<T>(result: nix::Result<Option<T>>) -> io::Result<Option<T>> {
    match result {
        Err(Errno::ENOENT | Errno::ESRCH | Errno::EBADF | Errno::EPERM) => Ok(None),
        result => Ok(result?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accounts_are_found_by_name() {
        assert_eq!(user("root").unwrap(), Some(Account { uid: 0, gid: 0 }));
        assert_eq!(group("root").unwrap(), Some(0));
        for name in ["no such name", "", "root\0"] {
            assert_eq!(user(name).unwrap(), None, "{name:?}");
            assert_eq!(group(name).unwrap(), None, "{name:?}");
        }
    }

    #[test]
    fn a_missing_name_is_not_an_error() {
        assert_eq!(found::<u32>(Err(Errno::ENOENT)).unwrap(), None);
        assert_eq!(found::<u32>(Err(Errno::EIO)).unwrap_err().raw_os_error(), Some(5));
    }
}

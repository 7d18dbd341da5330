//! Who servers run as: they refuse to run as root.

use std::fs;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

/// The user of the servers and of their files.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Owner(Option<(u32, u32)>);

impl Owner {
    /// `postgres` where the tests run as root, else whoever runs them.
    pub(crate) fn of_servers() -> Self {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let root = |line: &str| line.starts_with("Uid:") && line.split_whitespace().nth(2) == Some("0");
        if !status.lines().any(root) {
            return Self(None);
        }
        let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
        let line =
            users.lines().find(|line| line.starts_with("postgres:")).expect("a user `postgres` to run servers as");
        let number = |at: usize| line.split(':').nth(at).and_then(|n| n.parse().ok());
        Self(number(2).zip(number(3)))
    }

    /// Gives `path` to them.
    pub(crate) fn own(self, path: &Path) {
        if let Some((uid, gid)) = self.0 {
            chown(path, Some(uid), Some(gid)).expect("the file's owner");
        }
    }

    /// `program`, to be run by them.
    pub(crate) fn command(self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.current_dir("/").env_remove("PGDATA");
        if let Some((uid, gid)) = self.0 {
            command.uid(uid).gid(gid);
        }
        // A signal that is meant for the tests is not meant for it: it ends when they have ended.
        command.process_group(0);
        command
    }
}

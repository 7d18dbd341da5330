//! What the codes of PostgreSQL and of the operating system mean here, each in one table.

use std::io;

use firehose_core::ErrorKind;

/// What is known of a failure by its code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Verdict {
    /// Its kind.
    pub(crate) kind: ErrorKind,
    /// Whether the same call may well succeed later.
    pub(crate) retryable: bool,
    /// Whether it proves that the transaction it interrupted was rolled back.
    pub(crate) rolled_back: bool,
    /// Whether it is the data's fault, so that the rest of a batch would have gone through.
    pub(crate) data: bool,
}

const fn verdict(kind: ErrorKind, retryable: bool) -> Verdict {
    Verdict { kind, retryable, rolled_back: true, data: false }
}
const fn unproven(kind: ErrorKind) -> Verdict {
    Verdict { kind, retryable: true, rolled_back: false, data: false }
}
const fn of_data(kind: ErrorKind) -> Verdict {
    Verdict { kind, retryable: false, rolled_back: true, data: true }
}
const OTHER: Verdict = verdict(ErrorKind::Backend, false);
const AGAIN: Verdict = verdict(ErrorKind::Backend, true);

/// Codes first, then their classes (PostgreSQL's documentation, appendix A).
#[rustfmt::skip]
pub(crate) const SQLSTATES: &[(&str, Verdict)] = &[
    // shutting down, crashing, starting: what was interrupted may have been committed
    ("57P01", unproven(ErrorKind::ServerShutdown)),
    ("57P02", unproven(ErrorKind::ServerShutdown)),
    ("57P03", unproven(ErrorKind::ServerShutdown)),
    ("57P04", verdict(ErrorKind::UnknownDatabase, false)),
    ("57P05", unproven(ErrorKind::ConnectionLost)),
    ("57014", AGAIN),
    ("25P03", verdict(ErrorKind::ConnectionLost, true)),
    ("25006", verdict(ErrorKind::Standby, true)),
    ("55P03", verdict(ErrorKind::StreamBlocked, true)),
    // a statement that was prepared is not known, or one of its name is: connections to the server change under us
    ("26000", verdict(ErrorKind::Pooler, false)),
    ("42P05", verdict(ErrorKind::Pooler, false)),
    ("53300", verdict(ErrorKind::LimitReached, true)),
    ("40003", unproven(ErrorKind::OutcomeUnknown)),
    ("08007", unproven(ErrorKind::OutcomeUnknown)),
    ("42501", verdict(ErrorKind::Permission, false)),
    ("42P01", verdict(ErrorKind::NotMigrated, false)),
    ("42703", verdict(ErrorKind::NotMigrated, false)),
    ("42883", verdict(ErrorKind::NotMigrated, false)),
    ("3F000", verdict(ErrorKind::NotMigrated, false)),
    ("3D000", verdict(ErrorKind::UnknownDatabase, false)),
    ("22021", of_data(ErrorKind::InvalidData)),
    ("22P05", of_data(ErrorKind::InvalidData)),
    ("54000", of_data(ErrorKind::TooLarge)),
    // classes
    ("00", OTHER), ("01", OTHER), ("02", OTHER), ("03", OTHER),
    ("08", unproven(ErrorKind::ConnectionLost)),
    ("09", of_data(ErrorKind::Backend)),
    ("0A", OTHER), ("0B", OTHER), ("0F", OTHER), ("0L", OTHER), ("0P", OTHER), ("0Z", OTHER),
    ("10", OTHER), ("20", OTHER), ("21", of_data(ErrorKind::Backend)),
    ("22", of_data(ErrorKind::Backend)),
    ("23", of_data(ErrorKind::Backend)),
    ("24", OTHER), ("25", OTHER), ("26", OTHER), ("27", of_data(ErrorKind::Backend)),
    ("28", verdict(ErrorKind::Auth, false)),
    ("2B", OTHER), ("2D", OTHER), ("2F", of_data(ErrorKind::Backend)), ("34", OTHER),
    ("38", of_data(ErrorKind::Backend)), ("39", of_data(ErrorKind::Backend)),
    ("3B", OTHER), ("3D", OTHER), ("3F", OTHER),
    ("40", AGAIN),
    ("42", OTHER),
    ("44", of_data(ErrorKind::Backend)),
    ("53", AGAIN),
    ("54", of_data(ErrorKind::Backend)),
    ("55", AGAIN),
    ("57", AGAIN),
    ("58", AGAIN),
    ("72", AGAIN),
    ("F0", OTHER), ("HV", OTHER),
    ("P0", of_data(ErrorKind::Backend)),
    ("XX", AGAIN),
];

/// What `code` means; a code of no class that is known proves nothing.
pub(crate) fn of_sqlstate(code: &str) -> Verdict {
    let find = |wanted: &str| SQLSTATES.iter().find(|(code, _)| *code == wanted).map(|(_, verdict)| *verdict);
    find(code).or_else(|| find(code.get(..2)?)).unwrap_or(Verdict { rolled_back: false, ..OTHER })
}

/// What a failure of the operating system means, where there was a connection or should have been.
pub(crate) fn of_io(kind: io::ErrorKind) -> ErrorKind {
    use io::ErrorKind as Io;
    match kind {
        Io::ConnectionRefused | Io::NotFound | Io::AddrNotAvailable => ErrorKind::Refused,
        Io::PermissionDenied => ErrorKind::Permission,
        // a reset, an end, a broken pipe, a timer of the kernel's, an unreachable network, whatever comes
        _ => ErrorKind::ConnectionLost,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_class_of_the_appendix_has_a_verdict() {
        let classes = "00 01 02 03 08 09 0A 0B 0F 0L 0P 0Z 10 20 21 22 23 24 25 26 27 28 2B 2D 2F 34 38 39 3B 3D 3F 40 \
                       42 44 53 54 55 57 58 72 F0 HV P0 XX";
        for class in classes.split(' ') {
            assert!(SQLSTATES.iter().any(|(code, _)| *code == class), "class {class}");
        }
        let mut codes: Vec<_> = SQLSTATES.iter().map(|(code, _)| *code).collect();
        codes.sort_unstable();
        codes.dedup();
        assert_eq!(codes.len(), SQLSTATES.len(), "a code stands twice");
    }

    #[test]
    #[rustfmt::skip]
    fn each_code_means_what_it_should() {
        for (code, kind, retryable, rolled_back, data) in [
            ("57P01", ErrorKind::ServerShutdown, true, false, false),
            ("57P02", ErrorKind::ServerShutdown, true, false, false),
            ("57P03", ErrorKind::ServerShutdown, true, false, false),
            ("57P05", ErrorKind::ConnectionLost, true, false, false),
            ("08006", ErrorKind::ConnectionLost, true, false, false),
            ("08007", ErrorKind::OutcomeUnknown, true, false, false),
            ("40003", ErrorKind::OutcomeUnknown, true, false, false),
            ("40001", ErrorKind::Backend, true, true, false),
            ("40P01", ErrorKind::Backend, true, true, false),
            ("57014", ErrorKind::Backend, true, true, false),
            ("25006", ErrorKind::Standby, true, true, false),
            ("26000", ErrorKind::Pooler, false, true, false),
            ("42P05", ErrorKind::Pooler, false, true, false),
            ("28P01", ErrorKind::Auth, false, true, false),
            ("28000", ErrorKind::Auth, false, true, false),
            ("3D000", ErrorKind::UnknownDatabase, false, true, false),
            ("53300", ErrorKind::LimitReached, true, true, false),
            ("53100", ErrorKind::Backend, true, true, false),
            ("42501", ErrorKind::Permission, false, true, false),
            ("42P01", ErrorKind::NotMigrated, false, true, false),
            ("55P03", ErrorKind::StreamBlocked, true, true, false),
            ("23505", ErrorKind::Backend, false, true, true),
            ("22003", ErrorKind::Backend, false, true, true),
            ("22021", ErrorKind::InvalidData, false, true, true),
            ("54000", ErrorKind::TooLarge, false, true, true),
            ("P0001", ErrorKind::Backend, false, true, true),
            ("XX000", ErrorKind::Backend, true, true, false),
            ("ZZ999", ErrorKind::Backend, false, false, false),
            ("", ErrorKind::Backend, false, false, false),
        ] {
            assert_eq!(of_sqlstate(code), Verdict { kind, retryable, rolled_back, data }, "{code}");
        }
    }

    #[test]
    fn c15_every_end_of_a_connection_is_one() {
        use io::ErrorKind as Io;
        for kind in [Io::UnexpectedEof, Io::ConnectionReset, Io::ConnectionAborted, Io::BrokenPipe, Io::TimedOut] {
            assert_eq!(of_io(kind), ErrorKind::ConnectionLost, "{kind:?}");
        }
        assert_eq!(of_io(Io::ConnectionRefused), ErrorKind::Refused);
        assert_eq!(of_io(Io::NotFound), ErrorKind::Refused, "no socket file");
        assert_eq!(of_io(Io::PermissionDenied), ErrorKind::Permission);
    }
}

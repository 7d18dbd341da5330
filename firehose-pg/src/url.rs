//! Reading a connection URL, the way libpq does, for both drivers at once.
//!
//! The drivers understand different URLs, and the same parameter in different units (`tcp_user_timeout` is milliseconds
//! to libpq and seconds to tokio-postgres), so neither is ever given one.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use firehose_core::{Config, Error, ErrorKind, Result, Secret};
use percent_encoding::percent_decode_str;

use crate::target::{Address, Binding, Keepalive, Roots, Target, TlsMode};

const OPERATION: &str = "connection URL";

impl Target {
    /// Reads `url`; what it does not say comes from `config`.
    ///
    /// # Errors
    /// [`ErrorKind::Config`], naming the part that does not fit; never with the URL or the password in it.
    pub(crate) fn parse(url: &Secret, config: &Config) -> Result<Self> {
        let text = url.expose();
        let rest = text.strip_prefix("postgres://").or_else(|| text.strip_prefix("postgresql://"));
        let rest = rest.ok_or_else(|| refuse("it does not begin with postgres:// or postgresql://"))?;
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        // The last @: one in the password need not be encoded.
        let (login, hosts) = authority.rsplit_once('@').unwrap_or(("", authority));
        let (user, password) = match login.split_once(':') {
            Some((user, password)) => (user, Some(password)),
            None => (login, None),
        };
        let mut given = Parameters::read(query)?;

        let user = match given.take("user").map_or_else(|| decode("user", user), Ok)? {
            user if !user.is_empty() => user,
            _ => system_user()?,
        };
        let password = match given.take("password") {
            Some(password) => Some(password),
            None => password.map(|p| decode("password", p)).transpose()?,
        };
        let database = match given.take("dbname").map_or_else(|| decode("database", path), Ok)? {
            database if !database.is_empty() => database,
            _ => user.clone(),
        };
        let addresses = addresses(hosts, given.take("host"), given.take("port"))?;
        let (tls, roots) = tls(&mut given)?;
        let target = Self {
            addresses,
            user,
            password: password.map(Secret::from),
            database,
            tls,
            roots,
            channel_binding: given.choose("channel_binding", Binding::Prefer, BINDINGS)?,
            application_name: given.take("application_name").unwrap_or_else(|| config.application_name.clone()),
            keepalive: keepalive(&mut given, config)?,
            connect_timeout: given.number("connect_timeout")?.filter(|&s| s > 0).map(Duration::from_secs),
            read_write: given.choose("target_session_attrs", false, SESSION_ATTRS)?,
            options: given.take("options").map_or(Ok(Vec::new()), |text| session_options(&text))?,
        };
        given.choose("client_encoding", (), &[("utf8", ()), ("UTF8", ()), ("auto", ())])?;
        given.choose("gssencmode", (), &[("disable", ()), ("prefer", ())])?;
        given.finish()?;
        Ok(target)
    }
}

const BINDINGS: &[(&str, Binding)] =
    &[("disable", Binding::Disable), ("prefer", Binding::Prefer), ("require", Binding::Require)];
/// Writing is what a store is for: `primary` asks for no less than `any` gets here.
const SESSION_ATTRS: &[(&str, bool)] = &[("any", false), ("primary", false), ("read-write", true)];
const TLS_MODES: &[(&str, TlsMode)] = &[
    ("disable", TlsMode::Disable),
    ("prefer", TlsMode::Prefer),
    ("require", TlsMode::Require),
    ("verify-ca", TlsMode::VerifyCa),
    ("verify-full", TlsMode::VerifyFull),
];

fn refuse(what: impl Into<String>) -> Error {
    Error::new(ErrorKind::Config, OPERATION, what)
}

fn decode(what: &str, text: &str) -> Result<String> {
    match percent_decode_str(text).decode_utf8() {
        Ok(text) if !text.contains('\0') => Ok(text.into_owned()),
        Ok(_) => Err(refuse(format!("the {what} has a NUL"))),
        Err(_) => Err(refuse(format!("the {what} is not UTF-8"))),
    }
}

/// As libpq, the name of the one who runs the process.
fn system_user() -> Result<String> {
    let named = ["USER", "LOGNAME"].iter().find_map(|name| std::env::var(name).ok().filter(|user| !user.is_empty()));
    named.ok_or_else(|| refuse("it names no user"))
}

fn addresses(authority: &str, hosts: Option<String>, ports: Option<String>) -> Result<Vec<Address>> {
    let mut found = Vec::new();
    match hosts {
        Some(hosts) => found.extend(hosts.split(',').map(|host| (host.to_owned(), None))),
        None => {
            for part in authority.split(',') {
                let (host, port) = match part.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
                    Some((host, rest)) => (host, rest.strip_prefix(':')),
                    None => part.split_once(':').map_or((part, None), |(host, port)| (host, Some(port))),
                };
                found.push((decode("host", host)?, port.filter(|p| !p.is_empty()).map(port_number).transpose()?));
            }
        }
    }
    let ports: Vec<u16> = match ports {
        Some(ports) => ports.split(',').map(port_number).collect::<Result<_>>()?,
        None => Vec::new(),
    };
    if ports.len() > 1 && ports.len() != found.len() {
        return Err(refuse(format!("{} hosts and {} ports", found.len(), ports.len())));
    }
    let address = |(at, (host, port)): (usize, (String, Option<u16>))| {
        let port = port.or_else(|| ports.get(at).or_else(|| ports.first()).copied()).unwrap_or(5432);
        match host.as_str() {
            "" => Address::Tcp { host: "localhost".to_owned(), port },
            folder if folder.starts_with('/') => Address::Socket { folder: PathBuf::from(folder), port },
            _ => Address::Tcp { host, port },
        }
    };
    Ok(found.into_iter().enumerate().map(address).collect())
}

fn port_number(text: &str) -> Result<u16> {
    match text.parse() {
        Ok(port) if port > 0 => Ok(port),
        _ => Err(refuse("a port is no number from 1 to 65535")),
    }
}

fn tls(given: &mut Parameters) -> Result<(TlsMode, Roots)> {
    let mode = given.choose("sslmode", TlsMode::Prefer, TLS_MODES)?;
    let roots = given.take("sslrootcert");
    Ok(match (mode, roots.as_deref()) {
        (_, None) => (mode, Roots::System),
        (_, Some("system")) => (TlsMode::VerifyFull, Roots::System),
        // As libpq: who names roots wants them used.
        (TlsMode::Require, Some(file)) => (TlsMode::VerifyCa, Roots::File(PathBuf::from(file))),
        (_, Some(file)) => (mode, Roots::File(PathBuf::from(file))),
    })
}

fn keepalive(given: &mut Parameters, config: &Config) -> Result<Keepalive> {
    let seconds = |n: u64| Duration::from_secs(n);
    let on = given.number("keepalives")? != Some(0);
    let idle = given.number("keepalives_idle")?.map_or(config.tcp_keepalives_idle, seconds);
    let interval = given.number("keepalives_interval")?.map_or(config.tcp_keepalives_interval, seconds);
    let count = given.number("keepalives_count")?;
    let count = count.map_or(config.tcp_keepalives_count, |n| u32::try_from(n).unwrap_or(u32::MAX));
    let user_timeout = match given.number("tcp_user_timeout")? {
        Some(milliseconds) => Duration::from_millis(milliseconds),
        None if on => idle + interval * count,
        None => Duration::ZERO,
    };
    Ok(Keepalive { on, idle, interval, count, user_timeout })
}

/// The `-c name=value` of libpq's `options`.
fn session_options(text: &str) -> Result<Vec<(String, String)>> {
    let mut words = vec![String::new()];
    let mut characters = text.chars();
    while let Some(c) = characters.next() {
        let word = match words.last_mut() {
            Some(word) => word,
            None => break,
        };
        match c {
            '\\' => word.extend(characters.next()),
            ' ' => words.push(String::new()),
            c => word.push(c),
        }
    }
    let mut options = Vec::new();
    let mut words = words.into_iter().filter(|word| !word.is_empty());
    while let Some(word) = words.next() {
        let setting = match word.as_str() {
            "-c" => words.next().unwrap_or_default(),
            word => word.strip_prefix("--").or_else(|| word.strip_prefix("-c")).unwrap_or_default().to_owned(),
        };
        let (name, value) =
            setting.split_once('=').ok_or_else(|| refuse("options: only -c name=value is understood"))?;
        options.push((name.replace('-', "_"), value.to_owned()));
    }
    Ok(options)
}

/// The parameters after the question mark; each is taken once, and what is left over is an error.
struct Parameters(BTreeMap<String, String>);

impl Parameters {
    fn read(query: &str) -> Result<Self> {
        let mut found = BTreeMap::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            // The pair is not shown: it may be the password's.
            let (name, value) = pair.split_once('=').ok_or_else(|| refuse("a parameter has no value"))?;
            let name = decode("name of a parameter", name)?;
            found.insert(name.clone(), decode(&name, value)?);
        }
        Ok(Self(found))
    }

    fn take(&mut self, name: &str) -> Option<String> {
        self.0.remove(name)
    }

    fn number(&mut self, name: &str) -> Result<Option<u64>> {
        let Some(text) = self.take(name) else { return Ok(None) };
        let number = text.parse::<u64>().ok().filter(|n| *n <= 1_000_000_000);
        number.map(Some).ok_or_else(|| refuse(format!("{name}={text}: a number is expected")))
    }

    fn choose<T: Copy>(&mut self, name: &str, default: T, choices: &[(&str, T)]) -> Result<T> {
        let Some(text) = self.take(name) else { return Ok(default) };
        let names: Vec<&str> = choices.iter().map(|(name, _)| *name).collect();
        let chosen = choices.iter().find(|(choice, _)| *choice == text).map(|(_, value)| *value);
        chosen.ok_or_else(|| refuse(format!("{name}={text}: one of {} is expected", names.join(", "))))
    }

    fn finish(mut self) -> Result<()> {
        // What libpq offers beside what stands in the URL already; nothing is lost by not asking for it.
        ["fallback_application_name", "requiressl"].iter().for_each(|name| drop(self.take(name)));
        if self.0.is_empty() {
            return Ok(());
        }
        let names: Vec<&str> = self.0.keys().map(String::as_str).collect();
        Err(refuse(format!("{} is not understood", names.join(", "))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(url: &str) -> Result<Target> {
        Target::parse(&Secret::from(url), &Config::default())
    }

    fn tcp(host: &str, port: u16) -> Address {
        Address::Tcp { host: host.to_owned(), port }
    }

    #[test]
    fn c56_a_password_of_any_characters_comes_through() {
        for raw in [": / ? # [ ] @ % $ & + = , x", "pä$$wörd 日本", "%41", "a@b@c"] {
            let encoded = percent_encoding::utf8_percent_encode(raw, percent_encoding::NON_ALPHANUMERIC);
            let target = parse(&format!("postgres://u:{encoded}@h/d")).unwrap();
            assert_eq!(target.password.as_ref().map(Secret::expose), Some(raw));
            let query = parse(&format!("postgres://u@h/d?password={encoded}")).unwrap();
            assert_eq!(query.password, target.password);
        }
        let lenient = parse("postgres://u:a@b+c@h/d").unwrap();
        assert_eq!(lenient.password.as_ref().map(Secret::expose), Some("a@b+c"));
    }

    #[test]
    fn hosts_sockets_and_several_of_them() {
        let of = |url: &str| parse(url).unwrap().addresses;
        assert_eq!(of("postgres://u@h/d"), [tcp("h", 5432)]);
        assert_eq!(of("postgresql://u@[::1]:5433/d"), [tcp("::1", 5433)]);
        assert_eq!(of("postgres://u@h1:1,h2,[fe80::1]/d?port=7"), [tcp("h1", 1), tcp("h2", 7), tcp("fe80::1", 7)]);
        assert_eq!(of("postgres://u@/d?host=a,b&port=1,2"), [tcp("a", 1), tcp("b", 2)]);
        assert_eq!(of("postgres://u@/d"), [tcp("localhost", 5432)]);
        let socket = [Address::Socket { folder: "/run/pg sql".into(), port: 5433 }];
        assert_eq!(of("postgres://u@%2Frun%2Fpg%20sql:5433/d"), socket);
        assert_eq!(of("postgres:///d?user=u&host=/run/pg%20sql&port=5433"), socket);
    }

    #[test]
    fn units_are_libpqs() {
        let target = parse("postgres://u@h/d?keepalives_idle=5&keepalives_interval=2&keepalives_count=4&tcp_user_timeout=2500&connect_timeout=3").unwrap();
        let keepalive = target.keepalive;
        assert_eq!((keepalive.idle, keepalive.interval), (Duration::from_secs(5), Duration::from_secs(2)));
        assert_eq!((keepalive.count, keepalive.user_timeout), (4, Duration::from_millis(2500)));
        assert_eq!(target.connect_timeout, Some(Duration::from_secs(3)));
        let options = target.tokio_options(&target.addresses[0], None);
        assert_eq!(options.get_tcp_user_timeout(), Some(&Duration::from_millis(2500)));
        assert_eq!(options.get_keepalives_retries(), Some(4));
        let default = parse("postgres://u@h/d").unwrap().keepalive;
        assert_eq!(default.user_timeout, Duration::from_secs(60), "idle and all unanswered questions");
    }

    #[test]
    fn tls_and_options_are_libpqs() {
        let of = |query: &str| parse(&format!("postgres://u@h/d?{query}")).map(|t| (t.tls, t.roots));
        assert_eq!(of("").unwrap(), (TlsMode::Prefer, Roots::System));
        assert_eq!(of("sslmode=require").unwrap(), (TlsMode::Require, Roots::System));
        let file = Roots::File("/ca.pem".into());
        assert_eq!(of("sslmode=require&sslrootcert=/ca.pem").unwrap(), (TlsMode::VerifyCa, file.clone()));
        assert_eq!(of("sslmode=verify-full&sslrootcert=/ca.pem").unwrap(), (TlsMode::VerifyFull, file));
        let options = parse("postgres://u@h/d?options=-c%20a.b%3Dx%5C%20y%20--c-d%3D1").unwrap();
        assert_eq!(options.options, [("a.b".into(), "x y".into()), ("c_d".to_owned(), "1".to_owned())]);
        assert_eq!(options.options_text_for_test(), "-c a.b=x\\ y -c c_d=1");
    }

    #[test]
    fn what_does_not_fit_is_named_and_the_password_is_not() {
        for (url, named) in [
            ("mysql://u:hunter2@h/d", "postgres://"),
            ("postgres://u:hunter2@h:0/d", "port"),
            ("postgres://u:hunter2@h/d?sslmode=loose", "sslmode=loose"),
            ("postgres://u:hunter2@h/d?sslcert=x", "sslcert is not understood"),
            ("postgres://u:hunter2@h/d?target_session_attrs=standby", "target_session_attrs"),
            ("postgres://u:hunter2%FF@h/d", "password is not UTF-8"),
            ("postgres://u:hunter2@h/d?keepalives_idle=soon", "keepalives_idle=soon"),
            ("postgres://u@h/d?hunter2", "no value"),
            ("postgres://u:hunter2@a,b/d?port=1,2,3", "2 hosts and 3 ports"),
        ] {
            let e = parse(url).unwrap_err();
            assert_eq!(e.kind(), ErrorKind::Config);
            assert!(e.to_string().contains(named), "{e}");
            assert!(!format!("{e} {e:?}").contains("hunter2"), "{e}");
        }
        let target = parse("postgres://u:hunter2@h/d").unwrap();
        assert!(!format!("{target:?}").contains("hunter2"));
    }

    impl Target {
        fn options_text_for_test(&self) -> String {
            self.tokio_options(&self.addresses[0], None).get_options().unwrap_or_default().to_owned()
        }
    }
}

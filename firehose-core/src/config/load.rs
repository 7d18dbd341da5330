//! From defaults, a file and the environment to one configuration.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use figment::providers::{Format, Toml};
use figment::value::{Dict, Map, Value};
use figment::{Figment, Metadata, Profile, Provider};

use super::keys::Config;
use crate::error::{Error, ErrorKind, Result};

const FILE: &str = "firehose.toml";
const PREFIX: &str = "FIREHOSE_";

/// Tables and keys of a file that belong to other layers, and variables that are not keys.
const FOREIGN_TABLES: [&str; 1] = ["http"];
const FOREIGN_VARIABLES: [&str; 4] = ["profile", "log", "listen", "store"];

/// A configuration with what was noticed while it was read.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Loaded {
    /// The configuration, validated.
    pub config: Config,
    /// What is odd but no error: a variable `FIREHOSE_…` that is no key.
    pub warnings: Vec<String>,
}

impl Config {
    /// Reads the configuration: defaults, then `firehose.toml` of the working directory where there is one, then
    /// `FIREHOSE_*` variables.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] where the file cannot be read or has an unknown key, a value does not fit, or
    /// [`Config::validate`] finds something.
    pub fn load() -> Result<Loaded> {
        Self::load_from(None)
    }

    /// As [`Config::load`], with the file given. It must exist.
    ///
    /// The file has the tables `[default]`, `[development]`, `[production]` or any other profile; `FIREHOSE_PROFILE`
    /// chooses, else `default`. A file without such tables counts as `[default]`.
    ///
    /// # Errors
    /// As [`Config::load`].
    pub fn load_from(file: Option<&Path>) -> Result<Loaded> {
        load(file, std::env::vars_os().collect())
    }
}

fn load(file: Option<&Path>, variables: Vec<(OsString, OsString)>) -> Result<Loaded> {
    let environment = Environment::read(variables)?;
    let profile = Profile::new(environment.profile.as_deref().unwrap_or("default"));
    let mut figment = Figment::new().select(profile);
    if let Some(path) = find(file)? {
        figment = figment.merge(ConfigFile::read(&path)?);
    }
    let known = known_keys();
    let mut warnings = Vec::new();
    let mut values = Dict::new();
    for (key, value) in environment.values {
        if known.contains(&key) {
            values.insert(key, Value::from(value));
        } else if !FOREIGN_VARIABLES.contains(&key.as_str()) && !key.starts_with("http_") {
            warnings.push(format!("{PREFIX}{} is not a key of the configuration, and is ignored", key.to_uppercase()));
        }
    }
    let config: Config = figment.merge(Variables(values)).extract_lossy().map_err(|e| describe(&e))?;
    config.validate()?;
    Ok(Loaded { config, warnings })
}

/// The file given, which must exist, or the working directory's own, which need not. Never a parent folder's.
fn find(given: Option<&Path>) -> Result<Option<PathBuf>> {
    match given {
        Some(path) if path.is_file() => Ok(Some(path.to_path_buf())),
        Some(path) => Err(Error::new(ErrorKind::Config, "configuration", format!("no file {}", path.display()))),
        None => Ok(Some(PathBuf::from(FILE)).filter(|p| p.is_file())),
    }
}

fn known_keys() -> Vec<String> {
    match figment::value::Value::serialize(Config::default()) {
        Ok(Value::Dict(_, dict)) => dict.into_keys().collect(),
        _ => Vec::new(),
    }
}

/// figment's errors, one a line, without the values of anything that could be a secret.
fn describe(error: &figment::Error) -> Error {
    let lines: Vec<String> = error
        .clone()
        .into_iter()
        .map(|e| {
            let source = e.metadata.as_ref().map(|m| match &m.source {
                Some(source) => format!(" in {source}"),
                None => format!(" in {}", m.name),
            });
            let key = e.path.last().cloned().unwrap_or_default();
            let key = if source.as_deref() == Some(" in the environment") {
                format!("{PREFIX}{}", key.to_uppercase())
            } else {
                key
            };
            let key = if key.is_empty() { String::new() } else { format!("{key}: ") };
            format!("{key}{}{}", e.kind, source.unwrap_or_default())
        })
        .collect();
    Error::new(ErrorKind::Config, "configuration", lines.join("; "))
}

/// A TOML file, with or without profile tables.
struct ConfigFile {
    path: PathBuf,
    profiles: Map<Profile, Dict>,
}

impl ConfigFile {
    fn read(path: &Path) -> Result<Self> {
        // A parser's error quotes the line it stumbled over, and that may be the one with the password.
        let unreadable = |e: figment::Error| {
            let what = e.kind.to_string();
            let what: Vec<&str> = what.lines().filter(|line| !line.contains('|') && !line.trim().is_empty()).collect();
            let message = format!("{}: {}", path.display(), what.join(": "));
            Error::new(ErrorKind::Config, "configuration", message)
        };
        let flat = Toml::file_exact(path).data().map_err(unreadable)?;
        let tables = flat.get(&Profile::Default).cloned().unwrap_or_default();
        let is_profile = |(name, value): (&String, &Value)| {
            matches!(value, Value::Dict(..)) && !FOREIGN_TABLES.contains(&name.as_str())
        };
        let mut profiles = Map::new();
        if tables.iter().any(is_profile) {
            if let Some((key, _)) = tables.iter().find(|(_, value)| !matches!(value, Value::Dict(..))) {
                let message = format!("{}: {key} stands outside the profile tables", path.display());
                return Err(Error::new(ErrorKind::Config, "configuration", message));
            }
            for (name, value) in tables {
                if let Value::Dict(_, mut dict) = value {
                    FOREIGN_TABLES.iter().for_each(|table| drop(dict.remove(*table)));
                    profiles.insert(Profile::new(&name), dict);
                }
            }
        } else {
            let mut dict = tables;
            FOREIGN_TABLES.iter().for_each(|table| drop(dict.remove(*table)));
            profiles.insert(Profile::Default, dict);
        }
        Ok(Self { path: path.to_path_buf(), profiles })
    }
}

impl Provider for ConfigFile {
    fn metadata(&self) -> Metadata {
        Metadata::from("TOML file", self.path.as_path())
    }

    fn data(&self) -> Result<Map<Profile, Dict>, figment::Error> {
        Ok(self.profiles.clone())
    }
}

/// The variables `FIREHOSE_*`: their values stay the strings they are.
struct Environment {
    profile: Option<String>,
    values: Vec<(String, String)>,
}

impl Environment {
    fn read(variables: Vec<(OsString, OsString)>) -> Result<Self> {
        let mut environment = Self { profile: None, values: Vec::new() };
        for (name, value) in variables {
            let Some(key) = name.to_str().and_then(|n| n.strip_prefix(PREFIX)).map(str::to_lowercase) else { continue };
            let Ok(value) = value.into_string() else {
                let message = format!("{PREFIX}{} is not UTF-8", key.to_uppercase());
                return Err(Error::new(ErrorKind::Config, "configuration", message));
            };
            if key == "profile" {
                environment.profile = Some(value);
            } else {
                environment.values.push((key, value));
            }
        }
        environment.values.sort();
        Ok(environment)
    }
}

struct Variables(Dict);

impl Provider for Variables {
    fn metadata(&self) -> Metadata {
        Metadata::named("the environment")
    }

    fn data(&self) -> Result<Map<Profile, Dict>, figment::Error> {
        Ok(Profile::Global.collect(self.0.clone()))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::config::CleanupThreshold;
    use crate::naming::Layout;

    fn from(toml: &str, env: &[(&str, &str)]) -> Result<Loaded> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("firehose.toml");
        std::fs::write(&path, toml).unwrap();
        load(Some(&path), env.iter().map(|(k, v)| (k.into(), v.into())).collect())
    }

    #[test]
    fn a_file_without_profiles_counts_as_default_and_variables_win() {
        let loaded = from(
            "gap_grace = \"20ms\"\nsweep_interval = 2\nlayout = \"buckets\"",
            &[("FIREHOSE_SWEEP_INTERVAL", "500ms")],
        )
        .unwrap();
        assert_eq!(loaded.config.gap_grace, Duration::from_millis(20));
        assert_eq!(loaded.config.sweep_interval, Duration::from_millis(500));
        assert_eq!(loaded.config.layout, Some(Layout::Buckets));
        assert_eq!(loaded.warnings, Vec::<String>::new());
    }

    #[test]
    fn the_profile_is_chosen_by_its_variable() {
        let file = "[default]\nsubscriber_buffer = 10\ngap_grace = 0.5\n[production]\nsubscriber_buffer = 20\n[default.http]\nanything = 1";
        assert_eq!(from(file, &[]).unwrap().config.subscriber_buffer, 10);
        let production = from(file, &[("FIREHOSE_PROFILE", "production")]).unwrap().config;
        assert_eq!((production.subscriber_buffer, production.gap_grace), (20, Duration::from_millis(500)));
    }

    #[test]
    fn an_unknown_key_in_a_file_is_an_error_and_an_unknown_variable_a_warning() {
        let e = from("gap_graze = 1", &[]).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::Config);
        assert!(e.to_string().contains("gap_graze"), "{e}");
        let loaded = from("", &[("FIREHOSE_PORT_8080_TCP", "x")]).unwrap();
        assert_eq!(loaded.warnings, ["FIREHOSE_PORT_8080_TCP is not a key of the configuration, and is ignored"]);
    }

    #[test]
    fn an_error_names_the_key_and_where_it_stands() {
        let e = from("subscriber_buffer = \"many\"", &[]).unwrap_err().to_string();
        assert!(e.contains("subscriber_buffer") && e.contains("firehose.toml"), "{e}");
        let e = from("", &[("FIREHOSE_GAP_GRACE", "soon")]).unwrap_err().to_string();
        assert!(e.contains("FIREHOSE_GAP_GRACE") && e.contains("environment"), "{e}");
        let e = from("x = = 1", &[]).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::Config);
    }

    #[test]
    fn no_error_shows_a_url() {
        let unclosed = from("gap_grace = 1\ndatabase_url = \"postgres://u:hunter2@h/d", &[]).unwrap_err();
        assert_eq!(unclosed.kind(), ErrorKind::Config);
        let wrong = from("database_url = [\"hunter2\"]", &[]).unwrap_err();
        assert!(wrong.to_string().contains("database_url"), "{wrong}");
        for e in [unclosed, wrong] {
            assert!(!format!("{e} {e:?}").contains("hunter2"), "{e}");
        }
        let loaded = from("", &[("FIREHOSE_DATABASE_URL", "postgres://u:0123@h/d")]).unwrap();
        assert_eq!(loaded.config.database_url.map(|u| u.expose().to_owned()).as_deref(), Some("postgres://u:0123@h/d"));
        assert_eq!(loaded.warnings, Vec::<String>::new());
    }

    #[test]
    fn variables_are_never_re_typed() {
        let loaded = from("", &[("FIREHOSE_PREFIX", "0123"), ("FIREHOSE_BUCKETS", "64")]).unwrap();
        assert_eq!(loaded.config.prefix.as_deref(), Some("0123"));
        assert_eq!(loaded.config.buckets, Some(64));
        for (text, threshold) in [("none", CleanupThreshold::Everything), ("250", CleanupThreshold::Newest(250))] {
            let variables = [("FIREHOSE_CLEANUP_THRESHOLD", text), ("FIREHOSE_GEM", "false")];
            let config = from("cleanup_threshold = 7", &variables).unwrap().config;
            assert_eq!((config.cleanup_threshold, config.gem), (Some(threshold), Some(false)));
        }
        let file = from("cleanup_threshold = 0\ngem = true", &[]).unwrap().config;
        assert_eq!((file.cleanup_threshold, file.gem), (Some(CleanupThreshold::Newest(0)), Some(true)));
        let e = from("cleanup_threshold = -1", &[]).unwrap_err().to_string();
        assert!(e.contains("cleanup_threshold") && e.contains("\"none\""), "{e}");
    }

    #[test]
    fn an_age_may_be_none() {
        let age = |toml: &str, env: &[(&str, &str)]| from(toml, env).map(|loaded| loaded.config.retention_max_age);
        assert_eq!(age("", &[]).unwrap(), None);
        assert_eq!(age("retention_max_age = \"1h\"", &[]).unwrap(), Some(Duration::from_secs(3_600)));
        assert_eq!(age("retention_max_age = 90000", &[]).unwrap(), Some(Duration::from_secs(90_000)));
        let variable = [("FIREHOSE_RETENTION_MAX_AGE", "none")];
        assert_eq!(age("retention_max_age = \"1h\"", &variable).unwrap(), None);
        let variable = [("FIREHOSE_RETENTION_MAX_AGE", "2h"), ("FIREHOSE_RETENTION_INTERVAL", "1m")];
        assert_eq!(age("", &variable).unwrap(), Some(Duration::from_secs(7_200)));
        let e = age("retention_max_age = \"old\"", &[]).unwrap_err().to_string();
        assert!(e.contains("retention_max_age") && e.contains("\"none\""), "{e}");
    }

    #[test]
    fn a_file_that_is_named_must_exist() {
        let e = load(Some(Path::new("/nowhere/firehose.toml")), Vec::new()).unwrap_err();
        assert_eq!(e.to_string(), "configuration: no file /nowhere/firehose.toml");
    }
}

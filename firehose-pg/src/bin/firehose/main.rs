//! The command `firehose`: what a person on call does by hand.

mod bench;
mod lines;
mod migrate;
mod output;
mod printer;
mod publish;
mod signals;
mod start;
mod tail;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use firehose_core::{Config, Error, ErrorKind, Secret};

use crate::output::say;

/// Persistent publish/subscribe on PostgreSQL.
#[derive(Parser)]
#[command(name = "firehose", version)]
struct Command {
    #[command(flatten)]
    common: Common,
    #[command(subcommand)]
    action: Action,
}

/// What every action takes.
#[derive(Args)]
struct Common {
    /// The database, as postgres://user:password@host:port/database; by default FIREHOSE_DATABASE_URL or the file's
    #[arg(long, global = true, value_name = "URL")]
    database_url: Option<String>,
    /// The configuration file; by default firehose.toml of the working directory, where there is one
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Write JSON, and nothing but JSON, to standard output
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Subcommand)]
enum Action {
    /// Measure how fast this is, each figure beside a floor or a rival of the same minute
    Bench(bench::Bench),
    /// Make the tables, or adopt those of the gem; change them, print them, or take them away
    Migrate(migrate::Migrate),
    /// Store a message, or each line of standard input as one, exactly once and in order
    Publish(publish::Publish),
    /// Print what is published, until a signal ends it; it lives through lost connections
    Tail(tail::Tail),
}

/// Exit codes: well, with warnings, errors or wrong use, unreachable.
const WELL: u8 = 0;
const WARNINGS: u8 = 1;
const ERRORS: u8 = 2;
const UNREACHABLE: u8 = 3;

fn main() -> ExitCode {
    let command = Command::parse();
    ExitCode::from(match run(&command) {
        Ok(warnings) if warnings => WARNINGS,
        Ok(_) => WELL,
        Err(error) => {
            say(&error);
            if let Some(hint) = error.hint() {
                say(hint);
            }
            exit_code(&error)
        }
    })
}

/// Gives whether there was something to warn of.
fn run(command: &Command) -> Result<bool, Error> {
    let loaded = Config::load_from(command.common.config.as_deref())?;
    loaded.warnings.iter().for_each(say);
    let mut config = loaded.config;
    if let Some(url) = &command.common.database_url {
        config.database_url = Some(Secret::from(url.as_str()));
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|e| Error::new(ErrorKind::Backend, "start", e.to_string()))?;
    let json = command.common.json;
    let done = match &command.action {
        Action::Bench(bench) => bench.run(&config, json),
        Action::Migrate(migrate) => runtime.block_on(migrate.run(&config, json)),
        Action::Publish(publish) => runtime.block_on(publish.run(&config, json)),
        Action::Tail(tail) => runtime.block_on(tail.run(&config, json)),
    };
    // A name that is still being looked up must not hold up the end.
    runtime.shutdown_background();
    done?;
    Ok(!loaded.warnings.is_empty())
}

fn exit_code(error: &Error) -> u8 {
    match error.kind() {
        ErrorKind::Refused
        | ErrorKind::Dns
        | ErrorKind::ConnectionLost
        | ErrorKind::ServerShutdown
        | ErrorKind::LimitReached
        | ErrorKind::Timeout(_) => UNREACHABLE,
        _ => ERRORS,
    }
}

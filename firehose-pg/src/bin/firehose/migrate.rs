//! `firehose migrate`.

use clap::Args;
use firehose_core::{Config, Error};
use firehose_migrations::SchemaName;
use firehose_pg::Migrations;
use serde_json::json;

/// Without an option: make the tables, or adopt those of the gem.
#[derive(Args)]
#[group(multiple = false)]
pub(crate) struct Migrate {
    /// Take away what Firehose added; its tables only where it made them, with all messages
    #[arg(long)]
    down: bool,
    /// Make the gem's 32-bit columns bigint: rewrites the tables under an exclusive lock
    #[arg(long)]
    widen: bool,
    /// Print the statements, and touch no database
    #[arg(long)]
    print: bool,
    /// Change a setting of the database: layout, buckets, prefix, gem or cleanup_threshold
    #[arg(long, value_name = "KEY=VALUE", value_parser = pair)]
    set: Option<(String, String)>,
}

fn pair(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("KEY=VALUE is expected")?;
    Ok((key.to_owned(), value.to_owned()))
}

impl Migrate {
    pub(crate) async fn run(&self, config: &Config, json: bool) -> Result<(), Error> {
        if self.print {
            let schema = SchemaName::new(config.schema.as_deref().unwrap_or("public"));
            let sql = firehose_migrations::print(&schema);
            match json {
                true => println!("{}", json!({ "sql": sql })),
                false => print!("{sql}"),
            }
            return Ok(());
        }
        if self.widen {
            eprintln!(
                "firehose: this rewrites both tables under an exclusive lock; publishers and readers wait for it"
            );
        }
        let migrations = Migrations::connect(config).await?;
        let (done, said) = if self.down {
            migrations.down().await?;
            ("down", "taken away".to_owned())
        } else if self.widen {
            let said = if migrations.widen().await? { "widened" } else { "nothing to widen" };
            ("widen", said.to_owned())
        } else if let Some((key, value)) = &self.set {
            migrations.set(key, value).await?;
            ("set", format!("{key} = {value}"))
        } else {
            migrations.up().await?;
            ("up", "migrated".to_owned())
        };
        match json {
            true => println!("{}", json!({ "migrate": done, "result": said })),
            false => println!("{said}"),
        }
        Ok(())
    }
}

//! What is printed: JSON for machines, a table for people.

use firehose_core::Error;
use serde_json::{Map, Value, json};

use super::failed;
use super::place::Place;
use super::rounds::{Round, median};

/// One row with all its rounds. Its figures are the medians of theirs.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) row: &'static str,
    pub(crate) what: &'static str,
    /// Empty where there is none.
    pub(crate) floor: &'static str,
    pub(crate) unit: &'static str,
    pub(crate) rounds: Vec<Round>,
}

/// All that was measured, and where.
#[derive(Debug)]
pub(crate) struct Report {
    machine: Value,
    pub(crate) rows: Vec<Row>,
}

impl Row {
    fn has_floor(&self) -> bool {
        !self.floor.is_empty()
    }

    fn value(&self) -> f64 {
        median(self.rounds.iter().map(|round| round.value))
    }

    fn floor(&self) -> f64 {
        median(self.rounds.iter().map(|round| round.floor))
    }

    /// Between the floor and ours of each round, the least and the most.
    fn spread(&self) -> (f64, f64) {
        let ratios = self.rounds.iter().map(|round| round.value / round.floor);
        ratios.fold((f64::INFINITY, f64::NEG_INFINITY), |(least, most), r| (least.min(r), most.max(r)))
    }

    /// The medians of whatever else the rounds saw.
    fn detail(&self) -> Vec<(&'static str, f64)> {
        let names = self.rounds.first().map_or(&[][..], |round| &round.detail);
        let of = |name: &str| {
            let seen = self.rounds.iter().flat_map(|round| &round.detail);
            median(seen.filter(|(other, _)| *other == name).map(|(_, value)| *value))
        };
        names.iter().map(|(name, _)| (*name, of(name))).collect()
    }

    fn print_detail(&self) {
        let detail: Vec<String> = self.detail().iter().map(|(name, value)| format!("{name} {value:.3}")).collect();
        println!("     {}", detail.join(", "));
    }

    fn to_json(&self) -> Value {
        let (value, floor) = (self.value(), self.floor());
        let rounds: Vec<Value> = self
            .rounds
            .iter()
            .map(|round| {
                let mut all = numbers(&round.detail);
                all.insert("value".to_owned(), number(round.value));
                if self.has_floor() {
                    all.insert("floor".to_owned(), number(round.floor));
                }
                all.into()
            })
            .collect();
        let mut row = Map::new();
        row.insert("row".to_owned(), self.row.into());
        row.insert("value".to_owned(), number(value));
        row.insert("unit".to_owned(), self.unit.into());
        if self.has_floor() {
            row.insert("floor".to_owned(), number(floor));
            row.insert("ratio".to_owned(), number(value / floor));
        }
        row.insert("detail".to_owned(), numbers(&self.detail()).into());
        row.insert("rounds".to_owned(), rounds.into());
        row.into()
    }
}

impl Report {
    pub(crate) async fn new(place: &Place) -> Result<Self, Error> {
        let client = place.client().await?;
        let sql = "SELECT current_setting('server_version'), current_setting('fsync'),
            current_setting('synchronous_commit'), current_setting('shared_buffers')";
        let row = client.query_one(sql, &[]).await.map_err(|e| failed("cannot ask the server", e))?;
        let setting = |at| row.try_get::<_, String>(at).map_err(|e| failed("cannot ask the server", e));
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let cpus = read("/proc/cpuinfo");
        let model = cpus.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
        let load = read("/proc/loadavg").split(' ').next().and_then(|load| load.parse::<f64>().ok());
        let machine = json!({
            "os": std::env::consts::OS, "arch": std::env::consts::ARCH,
            "cpu": model.map(|(_, name)| name.trim()),
            "cores": std::thread::available_parallelism().map_or(0, usize::from),
            "load": load, "debug": cfg!(debug_assertions),
            "postgresql": setting(0)?, "fsync": setting(1)?, "synchronous_commit": setting(2)?,
            "shared_buffers": setting(3)?,
        });
        Ok(Self { machine, rows: Vec::new() })
    }

    pub(crate) fn print(&self, json: bool) {
        if json {
            let rows: Vec<Value> = self.rows.iter().map(Row::to_json).collect();
            println!("{}", json!({ "machine": self.machine, "rows": rows }));
            return;
        }
        println!("{}", self.machine);
        println!(
            "{:<4} {:>10} {:>10} {:>6}  {:<14} {:<5} what / floor",
            "row", "value", "floor", "ratio", "spread", "unit"
        );
        for row in &self.rows {
            if !row.has_floor() {
                println!("{:<4} {:>10.3} {:>34} {:<5} {}", row.row, row.value(), "", row.unit, row.what);
                row.print_detail();
                continue;
            }
            let (value, floor, (least, most)) = (row.value(), row.floor(), row.spread());
            let spread = format!("{least:.2} to {most:.2}");
            println!(
                "{:<4} {value:>10.3} {floor:>10.3} {:>6.2}  {spread:<14} {:<5} {} / {}",
                row.row,
                value / floor,
                row.unit,
                row.what,
                row.floor
            );
            row.print_detail();
        }
    }
}

fn numbers(pairs: &[(&'static str, f64)]) -> Map<String, Value> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), number(*value))).collect()
}

/// With six decimals; what cannot be written in JSON is null.
fn number(value: f64) -> Value {
    json!((value * 1e6).round() / 1e6)
}

//! The whole, at once.

use firehose_testkit::Testkit;

use super::*;

/// Mixed sizes, 1 B to 100 kB, with escapes and emoji.
fn data(publisher: usize, n: usize) -> String {
    let unit = ["x", "\"", "\\", "\n", "🌍", "<b>", "é"][n % 7];
    let length = [1, 10, 300, 3_999, 4_000, 7_900, 20_000, 100_000][(publisher * 31 + n * 7) % 8];
    format!("{publisher}/{n}/{}", unit.repeat(length / unit.len()))
}

#[tokio::test(start_paused = true)]
async fn a_thousand_messages_of_eight_publishers_reach_three_subscribers_of_two_engines_once_and_in_order() {
    for seed in 1..=5 {
        let t = Testkit::new(seed);
        let (one, two) = (engine(&t).await, engine(&t).await);
        let mut subscribers =
            [one.subscribe("s").await.unwrap(), one.subscribe("s").await.unwrap(), two.subscribe("s").await.unwrap()];
        t.wire().drop_with(0.1);
        t.wire().duplicate_with(0.1);
        t.wire().shuffle(16);
        let publishers: Vec<_> = (0..8)
            .map(|p| {
                let f = if p % 2 == 0 { one.clone() } else { two.clone() };
                tokio::spawn(async move {
                    for n in 0..125 {
                        f.broadcast("s", data(p, n)).await.unwrap();
                        tokio::task::yield_now().await;
                    }
                })
            })
            .collect();
        t.clock().advance(ms(1)).await;
        t.wire().cut();
        for p in publishers {
            p.await.unwrap();
        }
        let stored: Vec<String> = t.database().messages("s").iter().map(tell_stored).collect();
        assert_eq!(stored.len(), 1_000);
        for s in &mut subscribers {
            assert_said(&said_within(&t, s, Duration::from_secs(5)).await, &stored, &format!("seed {seed}"));
        }
        for p in 0..8 {
            let own: Vec<&String> = stored.iter().filter(|d| d.contains(&format!(":{p}/"))).collect();
            let sent: Vec<String> = (0..125).map(|n| data(p, n)).collect();
            assert!(own.iter().zip(&sent).all(|(a, b)| a.ends_with(b.as_str())), "order of acceptance");
        }
        for f in [one, two] {
            assert!(f.shutdown(ms(1_000)).await.is_clean());
        }
    }
}

fn tell_stored(m: &Message) -> String {
    format!("{}:{}", m.sequence, m.data)
}

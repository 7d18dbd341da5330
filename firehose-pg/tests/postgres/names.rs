//! Names, bytes and encodings, from the store to the wire.

use firehose_core::{
    Blocked, ChannelIdentifier, Cursor, ErrorKind, HeadDetail, Naming, NewMessage, PageLimit, Position, StreamName,
    wire,
};

use crate::append::{name, new};
use crate::harness::both_shapes;
use crate::transport::{channel, heard, notification, session};

both_shapes! {
    async fn c41_c42_names_of_any_length_and_characters_do_not_meet(db) {
        let backend = db.backend().await;
        let mut session = session(&backend).await;
        let prefix = "p".repeat(63);
        let names = [
            prefix.clone(), format!("{prefix}1"), format!("{prefix}2"), "x".repeat(200), "é".repeat(512),
            "my-channel".into(), "My".into(), "my".into(), "\"; DROP TABLE firehose_messages; --".into(), "'".into(), " ".into(),
            "line\nbreak\r\t".into(), "🌍".into(), "é".into(), "e\u{301}".into(), "$1 %s {} \\".into(), "\u{1}".into(),
        ];
        // Incompressible, and as long as a name may be.
        let random: String = (0..1_024u64).map(|n| char::from(33 + (n.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40) as u8 % 94)).collect();
        let names: Vec<String> = names.into_iter().chain([random]).collect();
        let streams: Vec<StreamName> = names.iter().map(|n| name(n)).collect();
        let channels: Vec<ChannelIdentifier> = streams.iter().map(|s| Naming::default().stream(s)).collect();
        session.control.listen(&channels).await.unwrap();
        let entries: Vec<NewMessage> = names.iter().map(|n| new(n, n)).collect();
        let results = backend.store.append(&entries, Blocked::Skip).await;
        for (at, result) in results.iter().enumerate() {
            let message = result.as_ref().unwrap();
            assert_eq!((message.sequence.0, &*message.data), (1, names[at].as_str()));
            backend.notifier.notify(&[notification(channels[at].as_str(), &wire::encode(message, 7_999))]).await.unwrap();
            let (on, payload) = heard(&mut session).await;
            assert_eq!(on, channels[at].as_str());
            let announced = wire::decode(&payload).unwrap();
            assert_eq!((announced.stream, announced.data.as_deref()), (streams[at].clone(), Some(names[at].as_str())));
        }
        let heads = backend.store.heads(&streams, HeadDetail::Full).await.unwrap();
        assert!(heads.iter().all(|head| head.is_some_and(|head| head.sequence.0 == 1)));
        let requests: Vec<_> = streams.iter().map(|s| (s.clone(), Position::Cursor(Cursor::BEGINNING))).collect();
        let pages = backend.store.read_after(&requests, PageLimit { rows: 9, bytes: 1 << 20 }).await.unwrap();
        for (stream, page) in streams.iter().zip(pages) {
            assert_eq!((page.messages.len(), &*page.messages[0].data), (1, stream.as_str()));
        }
        assert_eq!(StreamName::new("x".repeat(1_025)).unwrap_err().kind(), ErrorKind::InvalidName);
    }

    async fn c42_channels_of_the_users_own_are_quoted(db) {
        let backend = db.backend().await;
        let mut session = session(&backend).await;
        let names = ["My", "my", "a\"b", "a'b", "a;b", "a b", "ü🌍", "1", "select", "a\nb", "\\", &"x".repeat(63)];
        for own in names {
            session.control.listen(&[channel(own)]).await.unwrap();
            backend.notifier.notify(&[notification(own, own)]).await.unwrap();
            assert_eq!(heard(&mut session).await, (own.to_owned(), own.to_owned()));
        }
        let mut registered = session.control.registered().await.unwrap().unwrap();
        registered.sort();
        let mut expected: Vec<_> = names.iter().map(|n| channel(n)).collect();
        expected.sort();
        assert_eq!(registered, expected);
    }

    async fn data_comes_back_byte_for_byte(db) {
        let store = db.backend().await.store;
        let all: String = (1..=0x10_FFFFu32).step_by(37).filter_map(char::from_u32).collect();
        for data in ["", "\u{feff}", "\\x00", "\r\n", "'; --", "null", &all, &"x".repeat(1 << 20)] {
            let message = store.append(&[new("a", data)], Blocked::Skip).await.remove(0).unwrap();
            assert_eq!(&*store.get_many(&[message.id]).await.unwrap()[0].data, data);
        }
        assert_eq!(NewMessage::new("a", "x\0y").unwrap_err().kind(), ErrorKind::InvalidData, "c43: before the database is asked");
    }

    async fn c44_what_was_given_up_is_not_heard(db) {
        let backend = db.backend().await;
        let mut session = session(&backend).await;
        session.control.listen(&[channel("a")]).await.unwrap();
        session.control.unlisten(&[channel("a")]).await.unwrap();
        session.control.listen(&[channel("b")]).await.unwrap();
        backend.notifier.notify(&[notification("a", "for nobody"), notification("b", "for b")]).await.unwrap();
        assert_eq!(heard(&mut session).await, ("b".to_owned(), "for b".to_owned()));
    }
}

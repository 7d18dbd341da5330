//! The page to try it on: one file, nothing from outside.

use std::sync::LazyLock;

use axum::extract::State;
use axum::http::{HeaderName, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest, Sha256};

use crate::router::App;

const PAGE: &str = include_str!("../assets/index.html");

/// Allows this page's own script and style, by their hashes, and requests to where it came from; nothing else.
static POLICY: LazyLock<HeaderValue> = LazyLock::new(|| {
    let (script, style) = (hash_of("script"), hash_of("style"));
    let policy = format!(
        "default-src 'none'; script-src '{script}'; style-src '{style}'; connect-src 'self'; img-src data:; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    );
    // ASCII throughout; without a policy that can be sent, nothing may run.
    HeaderValue::try_from(policy).unwrap_or(HeaderValue::from_static("default-src 'none'"))
});

/// The hash of what stands between `<tag>` and `</tag>`, as a browser computes it.
fn hash_of(tag: &str) -> String {
    let inside = PAGE
        .split_once(&format!("<{tag}>"))
        .and_then(|(_, rest)| rest.split_once(&format!("</{tag}>")))
        .map_or("", |(inside, _)| inside);
    format!("sha256-{}", STANDARD.encode(Sha256::digest(inside.as_bytes())))
}

/// Where the page says where messages are kept.
const KEPT_IN: &str = "<!-- kept in -->";

/// The page, with what it says of the store.
fn page_with(kept_in: Option<&str>) -> String {
    let kept_in = kept_in.map(|text| format!(" <span>Messages in {}.</span>", escaped(text)));
    PAGE.replacen(KEPT_IN, &kept_in.unwrap_or_default(), 1)
}

/// Text as HTML that shows it.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// `GET /`.
pub(crate) async fn page(State(app): State<App>) -> Response {
    let headers: [(HeaderName, HeaderValue); 5] = [
        (header::CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8")),
        (header::CONTENT_SECURITY_POLICY, POLICY.clone()),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-cache")),
        (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
        (header::REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
    ];
    (headers, page_with(app.options.kept_in.as_deref())).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_says_where_messages_are_kept() {
        assert!(page_with(Some("<b> & b.db")).contains("<span>Messages in &lt;b&gt; &amp; b.db.</span></footer>"));
        assert!(!page_with(None).contains("Messages in") && !page_with(None).contains(KEPT_IN));
    }

    #[test]
    fn the_page_is_one_file_whose_policy_fits_it() {
        assert_eq!(PAGE.matches("<script").count(), 1, "one script, found by its bare tag");
        assert_eq!(PAGE.matches("<style").count(), 1);
        for attribute in [" style=\"", " onclick=", " onload=", " src=\"http", "@import", "innerHTML"] {
            assert!(!PAGE.contains(attribute), "{attribute}");
        }
        let policy = POLICY.to_str().unwrap();
        assert!(policy.contains(&hash_of("script")) && policy.contains(&hash_of("style")), "{policy}");
        assert_ne!(hash_of("script"), hash_of("nothing of the kind"));
    }
}

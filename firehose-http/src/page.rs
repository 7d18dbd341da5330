//! The page to try it on: one file, nothing from outside.

use std::sync::LazyLock;

use axum::http::{HeaderName, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest, Sha256};

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

/// `GET /`.
pub(crate) async fn page() -> Response {
    let headers: [(HeaderName, HeaderValue); 5] = [
        (header::CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8")),
        (header::CONTENT_SECURITY_POLICY, POLICY.clone()),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-cache")),
        (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
        (header::REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
    ];
    (headers, PAGE).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

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

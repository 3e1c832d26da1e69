//! Syntax of names and labels (RFC 1123 and Kubernetes' "Labels and Selectors").

/// Whether `text` is a valid name of a namespace: an RFC 1123 label.
pub(crate) fn is_dns_label(text: &str) -> bool {
    text.len() <= 63 && is_dns_part(text)
}

/// Whether `text` is a valid name of a ConfigMap: an RFC 1123 subdomain. The API limits the length of the
/// whole, not of its parts.
pub(crate) fn is_dns_subdomain(text: &str) -> bool {
    text.len() <= 253 && text.split('.').all(is_dns_part)
}

/// Whether `text` is a valid key of a label: `[PREFIX/]NAME`.
pub(crate) fn is_label_key(text: &str) -> bool {
    let (prefix, name) = text.split_once('/').map_or((None, text), |(prefix, name)| (Some(prefix), name));
    prefix.is_none_or(is_dns_subdomain) && !name.is_empty() && is_label_value(name)
}

/// Whether `text` is a valid value of a label. The value may be empty.
pub(crate) fn is_label_value(text: &str) -> bool {
    text.len() <= 63
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
        && !text.starts_with(['-', '_', '.'])
        && !text.ends_with(['-', '_', '.'])
}

fn is_dns_part(text: &str) -> bool {
    !text.is_empty()
        && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
        && !text.starts_with('-')
        && !text.ends_with('-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_what_the_api_takes_for_names() {
        for good in ["a", "kube-system", "0a9"] {
            assert!(is_dns_label(good) && is_dns_subdomain(good), "{good}");
        }
        for bad in ["", "-a", "a-", "A", "a_b", "a b", "ä", "a/b"] {
            assert!(!is_dns_label(bad) && !is_dns_subdomain(bad), "{bad}");
        }
        assert!(is_dns_subdomain("kube-root-ca.crt") && !is_dns_label("kube-root-ca.crt"));
        assert!(!is_dns_subdomain("a..b"));
        assert!(is_dns_label(&"a".repeat(63)) && !is_dns_label(&"a".repeat(64)));
        assert!(is_dns_subdomain(&"a".repeat(253)) && !is_dns_subdomain(&"a".repeat(254)));
    }

    #[test]
    fn label_keys_may_have_a_prefix_and_label_values_may_be_empty() {
        for good in ["app", "app.kubernetes.io/name", "A_b.c-9"] {
            assert!(is_label_key(good), "{good}");
        }
        for bad in ["", "/name", "prefix/", "a/b/c", "Prefix/name", "-app", "app,b", "a=b"] {
            assert!(!is_label_key(bad), "{bad}");
        }
        assert!(is_label_value("") && is_label_value("v1.2_3-x"));
        for bad in ["-", "a,b=c", "a b", "ä", "a."] {
            assert!(!is_label_value(bad), "{bad}");
        }
        assert!(is_label_value(&"a".repeat(63)) && !is_label_value(&"a".repeat(64)));
    }
}

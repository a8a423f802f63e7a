use proptest::prelude::*;

use super::*;

const SERVICES_JSON: &str = include_str!("services.json");
const SLICES_JSON: &str = include_str!("endpointslices.json");

fn of(services: &str, slices: &str, class: Option<&str>) -> Vec<Fragment> {
    let services = serde_json::from_str(services).unwrap();
    fragments(&services, &serde_json::from_str(slices).unwrap(), class)
}

/// Fragments as `KEY: TEXT`, without what keys begin with.
fn shown(fragments: &[Fragment]) -> Vec<String> {
    let one = |one: &Fragment| {
        format!(
            "{}: {}",
            one.key.strip_prefix(SERVICES).unwrap(),
            one.text.trim_end().replace('\n', ", ")
        )
    };
    fragments.iter().map(one).collect()
}

#[test]
fn services_of_type_load_balancer_and_their_pods_are_taken() {
    let expected = [
        "infra.dns.53: vip = \"192.0.2.53\", proto = \"udp\", port = 53",
        "infra.dns.53/backends/10.244.3.5: addr = \"10.244.3.5\"",
        "shop.web.http: vip = \"192.0.2.10\", proto = \"tcp\", port = 80",
        "shop.web.http.v6: vip = \"2001:db8::10\", proto = \"tcp\", port = 80",
        "shop.web.http.v6/backends/web-6d4cf56db6-2xk9q: addr = \"fd00:10:244:1::11\", port = 8080",
        "shop.web.http/backends/web-6d4cf56db6-2xk9q: addr = \"10.244.1.17\", port = 8080",
        "shop.web.http/backends/web-6d4cf56db6-8hbzn: addr = \"10.244.2.31\", port = 8080, drain = true",
        "shop.web.https: vip = \"192.0.2.10\", proto = \"tcp\", port = 443",
        "shop.web.https.v6: vip = \"2001:db8::10\", proto = \"tcp\", port = 443",
        "shop.web.https/backends/web-6d4cf56db6-2xk9q: addr = \"10.244.1.17\"",
        "shop.web.https/backends/web-6d4cf56db6-8hbzn: addr = \"10.244.2.31\", drain = true",
    ];
    assert_eq!(shown(&of(SERVICES_JSON, SLICES_JSON, None)), expected);
    let other = of(SERVICES_JSON, SLICES_JSON, Some("example.com/other"));
    assert_eq!(shown(&other), ["shop.other.80: vip = \"192.0.2.99\", proto = \"tcp\", port = 80"]);
    assert_eq!(of(SERVICES_JSON, SLICES_JSON, Some("none")), []);
    let none = r#"{"kind":"x","metadata":{},"items":null}"#;
    assert_eq!(of(none, SLICES_JSON, None), []);
    assert_eq!(of(SERVICES_JSON, none, None).len(), 5, "services without backends");
}

#[test]
fn an_endpoint_in_two_slices_is_one_backend() {
    // The newer slice says that the pod terminates, or the older one does: it takes connections while one of them shows it as ready.
    let terminating = SLICES_JSON.replace(
        "\"ready\": true, \"serving\": true, \"terminating\": false",
        "\"ready\": false, \"serving\": true, \"terminating\": true",
    );
    let mut both: serde_json::Value = serde_json::from_str(SLICES_JSON).unwrap();
    let other: serde_json::Value = serde_json::from_str(&terminating).unwrap();
    let more = other["items"].as_array().unwrap().clone();
    both["items"].as_array_mut().unwrap().extend(more);
    let twice = of(SERVICES_JSON, &both.to_string(), None);
    assert_eq!(twice, of(SERVICES_JSON, SLICES_JSON, None));
    both["items"].as_array_mut().unwrap().reverse();
    assert_eq!(of(SERVICES_JSON, &both.to_string(), None), twice, "the order has no effect");
}

#[test]
fn a_list_has_a_version_and_may_have_further_pages() {
    let list = |meta: &str| {
        let text = format!(r#"{{"metadata":{meta},"items":[]}}"#);
        serde_json::from_str::<List<Service>>(&text).unwrap()
    };
    assert_eq!(list(r#"{"resourceVersion":"17"}"#).version().as_deref(), Some("17"));
    assert_eq!(list(r#"{"resourceVersion":"1 HTTP/1.1\r\nX: y"}"#).version(), None);
    assert!(list("{}").is_whole() && list(r#"{"continue":""}"#).is_whole());
    assert!(!list(r#"{"continue":"abc"}"#).is_whole());
}

proptest! {
    #[test]
    fn changed_lists_never_panic(
        which: bool, at in 0usize..6000, len in 0usize..40, with in prop::sample::select(vec!["", "null", "1", "\"x\"", "[]", "{}", "-1", "99999", "\"192.0.2.1\""]),
    ) {
        let mut texts = [SERVICES_JSON.to_owned(), SLICES_JSON.to_owned()];
        let text = &mut texts[usize::from(which)];
        let at = at.min(text.len());
        let end = (at + len).min(text.len());
        if text.is_char_boundary(at) && text.is_char_boundary(end) {
            text.replace_range(at..end, with);
        }
        if let (Ok(services), Ok(slices)) = (serde_json::from_str(&texts[0]), serde_json::from_str(&texts[1])) {
            let all = fragments(&services, &slices, None);
            prop_assert!(all.iter().all(|one| one.key.starts_with(SERVICES)));
        }
    }
}

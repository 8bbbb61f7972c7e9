use super::*;

fn script() -> LinuxScript<'static> {
    LinuxScript { server_url: "https://remuda.example.com:8443/", ..LinuxScript::default() }
}

#[test]
fn the_prologue_is_in_the_order_agents_are_told() {
    let env = [
        ("HTTP_PROXY".to_owned(), "http://it's:1".to_owned()),
        ("EMPTY".to_owned(), String::new()),
        ("bad-name".to_owned(), "x".to_owned()),
    ];
    let text =
        LinuxScript { ca_checksum: Some("abc"), token: Some("t=="), env: &env, strict: true, ..script() }
            .render();
    let prologue = "#!/usr/bin/env sh\nexport HTTP_PROXY='http://it'\\''s:1'\nexport STRICT_VERIFY='true'\n\
                    CATTLE_AGENT_BINARY_BASE_URL=\"https://remuda.example.com:8443/assets\"\n\
                    CATTLE_SERVER=https://remuda.example.com:8443\nCATTLE_CA_CHECKSUM=\"abc\"\n\
                    CATTLE_ROLE_NONE=true\nCATTLE_TOKEN=\"t==\"\n\n# Installs";
    assert!(text.starts_with(prologue), "{}", &text[..600]);
}

#[test]
fn what_is_absent_leaves_a_blank_line_and_what_is_given_wins() {
    let env = [("STRICT_VERIFY".to_owned(), "false".to_owned())];
    let text = LinuxScript { env: &env, strict: true, ..script() }.render();
    assert!(text.contains("CATTLE_SERVER=https://remuda.example.com:8443\n\n\n\n# Installs"));
    assert_eq!(text.matches("STRICT_VERIFY='").count(), 1);
    assert!(text.contains("export STRICT_VERIFY='false'\n"));
}

#[test]
fn no_value_can_become_a_command() {
    assert_eq!(double_quoted("a\"$(x)`y`\\"), "\"a\\\"\\$(x)\\`y\\`\\\\\"");
    assert_eq!(word("https://[::1]:8443/x"), "https://[::1]:8443/x");
    assert_eq!(word("https://x;reboot"), "'https://x;reboot'");
}

#[test]
fn the_uninstall_script_comes_along_unchanged() {
    let text = script().render();
    assert!(text.contains(UNINSTALL));
    assert!(!text.contains("@UNINSTALL@"));
    assert!(!UNINSTALL.contains("END_OF_UNINSTALL"));
    assert!(text.ends_with("\nmain \"$@\"\n"));
}

#[test]
fn verification_is_strict_only_by_something_to_verify_with() {
    let text = |ca_checksum| LinuxScript { ca_checksum, strict: true, ..script() }.render();
    assert!(text(Some("abc")).contains("export STRICT_VERIFY='true'\n"));
    assert!(text(None).contains("export STRICT_VERIFY='false'\n"));
    assert!(text(Some("")).contains("export STRICT_VERIFY='false'\n"));
}

//! Which server is meant, in a home of its own.

use super::*;

/// A home with nothing in it, of somebody who is not root.
struct Home {
    dir: tempfile::TempDir,
    here: Surroundings,
}

impl Home {
    fn new() -> Home {
        let dir = tempfile::tempdir().unwrap();
        let home = Some(dir.path().to_owned());
        Home { dir, here: Surroundings { home, ..Surroundings::default() } }
    }

    /// A kubeconfig with these contexts, each at its server; the first is the current one.
    fn write(&self, path: &str, contexts: &[(&str, &str)]) -> PathBuf {
        let path = self.dir.path().join(path);
        let mut text = "apiVersion: v1\nkind: Config\n".to_owned();
        for (list, part) in [("clusters", "cluster"), ("users", "user"), ("contexts", "context")] {
            text.push_str(&format!("{list}:\n"));
            for (name, server) in contexts {
                let inner = match part {
                    "cluster" => format!("{{server: '{server}'}}"),
                    "user" => "{}".to_owned(),
                    _ => format!("{{cluster: {name}, user: {name}}}"),
                };
                text.push_str(&format!("- name: {name}\n  {part}: {inner}\n"));
            }
        }
        text.push_str(&format!("current-context: {}\n", contexts.first().map_or("", |(name, _)| name)));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        path
    }

    #[track_caller]
    fn finds(&self, asked: &Global, url: &str, file: &str) {
        let located = locate(asked, &self.here).unwrap();
        assert_eq!((located.url.as_str(), located.origin.file), (url, self.dir.path().join(file)));
    }

    #[track_caller]
    fn fails(&self, asked: &Global, code: Code, words: &[&str]) {
        let failure = locate(asked, &self.here).unwrap_err();
        let text = format!("{} {}", failure.message, failure.hint.unwrap_or_default());
        assert_eq!(failure.code, code, "{text}");
        for word in words {
            assert!(text.contains(word), "{word}: {text}");
        }
    }
}

const REMEMBERED: &str = ".config/remuda/server.kubeconfig";
const DEFAULT: &str = ".local/share/remuda/admin.kubeconfig";

#[test]
fn the_first_that_says_something_decides() {
    let mut home = Home::new();
    let nothing = Global::default();
    home.fails(
        &nothing,
        Code::Unreachable,
        &["no server is known", REMEMBERED, DEFAULT, ".kube/config", "remuda login"],
    );
    home.write(".kube/config", &[("k", "https://kubectl")]);
    home.finds(&nothing, "https://kubectl", ".kube/config");
    home.write(DEFAULT, &[("remuda", "https://default")]);
    home.finds(&nothing, "https://default", DEFAULT);
    home.write(REMEMBERED, &[("remuda", "https://login")]);
    home.finds(&nothing, "https://login", REMEMBERED);
    let exported = home.write("exported", &[("e", "https://exported"), ("f", "https://other")]);
    home.here.kubeconfig = Some(exported.clone().into());
    home.finds(&nothing, "https://exported", "exported");
    let context = Global { context: Some("f".to_owned()), ..Global::default() };
    home.finds(&context, "https://other", "exported");
    home.write("data/admin.kubeconfig", &[("remuda", "https://named")]);
    let named = Global { data_dir: Some(home.dir.path().join("data")), ..Global::default() };
    home.finds(&named, "https://named", "data/admin.kubeconfig");
    let file = home.write("file", &[("x", "https://file")]);
    home.finds(&Global { kubeconfig: Some(file), ..named }, "https://file", "file");
    home.here.kubeconfig = None;
    let context = Global { context: Some("k".to_owned()), ..Global::default() };
    home.finds(&context, "https://kubectl", ".kube/config");
}

#[test]
fn what_was_named_and_is_not_there_is_not_replaced_by_something_else() {
    let mut home = Home::new();
    home.write(".kube/config", &[("k", "https://kubectl")]);
    home.write(DEFAULT, &[("remuda", "https://default")]);
    let empty = home.dir.path().join("empty");
    fs::create_dir(&empty).unwrap();
    let asked = Global { data_dir: Some(empty), ..Global::default() };
    home.fails(&asked, Code::NotFound, &["empty/admin.kubeconfig", "--data-dir", "REMUDA_DATA_DIR"]);
    let asked = Global { kubeconfig: Some(home.dir.path().join("none")), ..Global::default() };
    home.fails(&asked, Code::NotFound, &["none"]);
    let asked = Global { context: Some("other".to_owned()), ..Global::default() };
    home.fails(&asked, Code::NotFound, &["there is no context other", ".kube/config", "--context: k"]);
    home.here.kubeconfig = Some(home.dir.path().join("gone").into());
    home.fails(&Global::default(), Code::NotFound, &["$KUBECONFIG", "gone"]);
}

#[test]
fn a_context_of_a_cluster_is_not_one_of_a_server() {
    let mut home = Home::new();
    let nothing = Global::default();
    let inside = ("demo", "https://h:1/k8s/clusters/c-m-1");
    home.write(".kube/config", &[inside, ("remuda", "https://h:1")]);
    let words = ["context demo of", "leads into a cluster", "--context remuda", "remuda login https://h:1"];
    home.fails(&nothing, Code::Unreachable, &words);
    let exported = home.write("exported", &[inside]);
    home.here.kubeconfig = Some(exported.into());
    home.fails(&nothing, Code::Unreachable, &["exported leads into a cluster", "remuda login https://h:1"]);
    home.write(DEFAULT, &[("remuda", "https://default")]);
    home.finds(&nothing, "https://default", DEFAULT);
    home.write(REMEMBERED, &[("remuda", "https://login")]);
    home.finds(&nothing, "https://login", REMEMBERED);
    home.here.kubeconfig = None;
    home.finds(&nothing, "https://login", REMEMBERED);
    // Whoever names it means it.
    let asked = Global { context: Some("demo".to_owned()), ..Global::default() };
    home.finds(&asked, inside.1, ".kube/config");
}

#[test]
fn files_are_put_together_as_kubectl_does() {
    let mut home = Home::new();
    let one = home.write("one", &[("a", "https://a")]);
    let two = home.write("two", &[("b", "https://b")]);
    let all = [home.dir.path().join("none"), one, two];
    home.here.kubeconfig = Some(env::join_paths(all).unwrap());
    home.finds(&Global::default(), "https://a", "one");
    let asked = Global { context: Some("b".to_owned()), ..Global::default() };
    home.finds(&asked, "https://b", "two");
    let located = locate(&asked, &home.here).unwrap();
    assert!(located.to_string().starts_with("https://b (context b of /"), "{located}");
}

#[test]
fn the_data_directory_is_where_the_server_has_it() {
    let root = Surroundings { is_root: true, ..Surroundings::default() };
    assert_eq!(root.default_data_dir(), Some("/var/lib/remuda".into()));
    assert_eq!(Surroundings::default().default_data_dir(), None);
    let home = Surroundings { home: Some("/home/me".into()), ..Surroundings::default() };
    assert_eq!(home.default_data_dir(), Some("/home/me/.local/share/remuda".into()));
    assert_eq!(home.remembered(), Some("/home/me/.config/remuda/server.kubeconfig".into()));
    let both = Surroundings { data_home: Some("/data".into()), config_home: Some("/config".into()), ..home };
    assert_eq!(both.default_data_dir(), Some("/data/remuda".into()));
    assert_eq!(both.remembered(), Some("/config/remuda/server.kubeconfig".into()));
}

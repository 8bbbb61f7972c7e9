//! Doors as data, and which path leads to which.

use std::fmt::Write;

/// Which paths a door owns. Of several that match, the longest wins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owned {
    Exact(&'static str),
    /// Everything that begins so; ends with a slash.
    Below(&'static str),
    /// The path itself and everything below it.
    Tree(&'static str),
    /// Whatever no other door owns.
    Rest,
}

impl Owned {
    /// How much of a path is matched; `None` if it is not.
    fn matches(self, path: &str) -> Option<usize> {
        match self {
            Self::Exact(own) => (path == own).then_some(own.len()),
            Self::Below(own) => path.starts_with(own).then_some(own.len()),
            Self::Tree(own) => {
                let rest = path.strip_prefix(own)?;
                (rest.is_empty() || rest.starts_with('/')).then_some(own.len())
            }
            Self::Rest => Some(0),
        }
    }

    /// What two doors must not have in common.
    fn stem(self) -> &'static str {
        match self {
            Self::Exact(own) | Self::Below(own) | Self::Tree(own) => own.trim_end_matches('/'),
            Self::Rest => "",
        }
    }

    /// For the table in the documentation.
    pub fn shown(self) -> String {
        match self {
            Self::Exact(own) => format!("`{own}`"),
            Self::Below(own) => format!("`{own}…`"),
            Self::Tree(own) => format!("`{own}`, `{own}/…`"),
            Self::Rest => "everything else".to_owned(),
        }
    }

    /// A path of this door, for tests that go through all doors.
    pub fn example(self) -> String {
        match self {
            Self::Exact(own) | Self::Tree(own) => own.to_owned(),
            Self::Below(own) => format!("{own}x"),
            Self::Rest => "/api/v1/namespaces".to_owned(),
        }
    }
}

/// Who may call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Everybody.
    Anonymous,
    /// Whoever shows a credential that is no user's and that the handler judges; this says which.
    Credential(&'static str),
    /// Anonymous: a request without a credential comes as `system:anonymous`, a credential that is shown must be good.
    /// The handler
    /// decides what strangers get.
    Optional,
    /// Every user of the management API.
    Authenticated,
    /// Users who may use the path with the method as verb (RBAC `nonResourceURLs`).
    Permission,
    /// The API server authenticates, authorizes and audits by itself.
    Api,
}

/// Whether the session cookie of a browser says who calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cookie {
    /// It is not looked at.
    Never,
    /// It does, for pages of this server; changes also need the proof in `X-Api-Csrf`.
    Proof,
    /// It does, for scripts of pages of this server: not for documents, frames or anything else a browser loads by
    /// itself; changes also need the proof in `X-Api-Csrf`.
    Fetch,
}

/// What the audit log shows of a URI.
#[derive(Debug, Clone, Copy)]
pub enum Shown {
    /// Only the path: the query may hold what opens something.
    Path,
    /// The path, and `action` of the query.
    Action,
    /// Path and query.
    Query,
    /// The path with what is secret in it replaced.
    Masked(fn(&str) -> String),
}

/// A door: what it owns and what the frame demands and does for it.
#[derive(Debug)]
pub struct Door {
    /// For tables and logs.
    pub name: &'static str,
    /// What is behind it, in a few words.
    pub purpose: &'static str,
    pub paths: &'static [Owned],
    /// In upper case; empty for all.
    pub methods: &'static [&'static str],
    pub access: Access,
    pub cookie: Cookie,
    pub shown: Shown,
    /// Bytes a body may have.
    pub body: usize,
    /// Whether answers are for the caller only and no cache may keep them.
    pub personal: bool,
}

/// Whatever the method is.
pub const ANY_METHOD: &[&str] = &[];

impl Door {
    pub fn allows(&self, method: &str) -> bool {
        self.methods.is_empty() || self.methods.contains(&method)
    }

    /// Its line in the table of the documentation.
    pub fn row(&self) -> String {
        let paths: Vec<String> = self.paths.iter().map(|owned| owned.shown()).collect();
        let methods = if self.methods.is_empty() { "any".to_owned() } else { self.methods.join(", ") };
        let access = match self.access {
            Access::Anonymous => "everybody".to_owned(),
            Access::Credential(which) => which.to_owned(),
            Access::Optional => "everybody; what is shown is decided by who calls".to_owned(),
            Access::Authenticated => "users".to_owned(),
            Access::Permission => "users with the path in a role (`nonResourceURLs`)".to_owned(),
            Access::Api => "decided by the API".to_owned(),
        };
        let cookie = match self.cookie {
            Cookie::Never => "no",
            Cookie::Proof => "pages of this server; changes with `X-Api-Csrf`",
            Cookie::Fetch => "scripts of this server's pages; changes with `X-Api-Csrf`",
        };
        let shown = match (self.access, self.shown) {
            (Access::Api, _) => "by the API: path and query",
            (_, Shown::Path) => "path",
            (_, Shown::Action) => "path and `action`",
            (_, Shown::Query) => "path and query",
            (_, Shown::Masked(_)) => "path without its token",
        };
        let body = match self.body {
            0 => "none".to_owned(),
            usize::MAX => "not limited here".to_owned(),
            bytes => format!("{} KiB", bytes >> 10),
        };
        let mut row = String::new();
        let _ = write!(
            row,
            "| {} | {} | {} | {methods} | {access} | {cookie} | {shown} | {body} |",
            self.name,
            self.purpose,
            paths.join(", ")
        );
        row
    }
}

/// Finds the door of a path.
#[derive(Debug, Clone)]
pub struct Table {
    doors: Vec<&'static Door>,
    rest: usize,
}

impl Table {
    /// # Panics
    ///
    /// If two doors own the same path, one reaches into the Kubernetes API, or none owns the rest: that is a mistake
    /// in the program, found at its start.
    pub fn new(doors: impl IntoIterator<Item = &'static Door>) -> Self {
        let doors: Vec<&'static Door> = doors.into_iter().collect();
        let mut stems: Vec<&str> =
            doors.iter().flat_map(|door| door.paths.iter().map(|owned| owned.stem())).collect();
        stems.sort_unstable();
        for pair in stems.windows(2) {
            assert!(pair[0] != pair[1], "two doors own {:?}", pair[0]);
        }
        for owned in doors.iter().flat_map(|door| door.paths) {
            let stem = owned.stem();
            assert!(!is_kubernetes(&format!("{stem}/")), "{stem} is in the Kubernetes API");
            assert!(stem.is_empty() == (*owned == Owned::Rest), "a door owns the root");
            assert!(
                !matches!(owned, Owned::Below(below) if !below.ends_with('/')),
                "{stem} must end with a slash"
            );
        }
        let rest = doors.iter().position(|door| door.paths.contains(&Owned::Rest));
        let rest = rest.expect("a door owns the rest");
        Self { doors, rest }
    }

    pub fn doors(&self) -> &[&'static Door] {
        &self.doors
    }

    /// The place of the door that owns a path, in the order they were given.
    pub fn find(&self, path: &str) -> usize {
        // Nearly all requests of a busy server.
        if is_kubernetes(path) {
            return self.rest;
        }
        let mut found = (self.rest, 0);
        for (place, door) in self.doors.iter().enumerate() {
            for owned in door.paths {
                if let Some(length) = owned.matches(path).filter(|length| *length > found.1) {
                    found = (place, length);
                }
            }
        }
        found.0
    }
}

fn is_kubernetes(path: &str) -> bool {
    path.starts_with("/api/") || path.starts_with("/apis/")
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn door(name: &'static str, paths: &'static [Owned]) -> Door {
        Door {
            name,
            purpose: "",
            paths,
            methods: ANY_METHOD,
            access: Access::Anonymous,
            cookie: Cookie::Never,
            shown: Shown::Path,
            body: 0,
            personal: false,
        }
    }

    static PING: Door = door("ping", &[Owned::Exact("/ping")]);
    static CLUSTERS: Door = door("clusters", &[Owned::Below("/k8s/clusters/")]);
    static LOCAL: Door = door("local", &[Owned::Tree("/k8s/clusters/local")]);
    static REST: Door = door("rest", &[Owned::Rest]);
    static AGAIN: Door = door("again", &[Owned::Tree("/ping")]);
    static INSIDE: Door = door("inside", &[Owned::Exact("/api/v1")]);

    #[test]
    fn the_longest_match_owns_a_path() {
        let table = Table::new([&PING, &CLUSTERS, &LOCAL, &REST]);
        for (path, expected) in [
            ("/ping", "ping"),
            ("/ping/", "rest"),
            ("/pingx", "rest"),
            ("/k8s/clusters/", "clusters"),
            ("/k8s/clusters", "rest"),
            ("/k8s/clusters/c-1/api", "clusters"),
            ("/k8s/clusters/local", "local"),
            ("/k8s/clusters/local/api", "local"),
            ("/k8s/clusters/localx", "clusters"),
            ("/k8s/clusters/../ping", "clusters"),
            ("//ping", "rest"),
            ("/%70ing", "rest"),
            ("/api/v1/pods", "rest"),
            ("/", "rest"),
            ("", "rest"),
            ("*", "rest"),
        ] {
            assert_eq!(table.doors()[table.find(path)].name, expected, "{path}");
        }
    }

    #[test]
    #[should_panic(expected = "two doors own \"/ping\"")]
    fn a_path_has_one_door() {
        Table::new([&PING, &AGAIN, &REST]);
    }

    #[test]
    #[should_panic(expected = "is in the Kubernetes API")]
    fn the_kubernetes_api_has_its_paths_for_itself() {
        Table::new([&INSIDE, &REST]);
    }
}

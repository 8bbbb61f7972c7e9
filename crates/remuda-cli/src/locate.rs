//! Which server a command talks to: one rule for all commands.
//!
//! The first of these that says something decides, and what it says is not second-guessed:
//!
//! 1. `--kubeconfig`, with `--context` in it;
//! 2. `--data-dir` or `$REMUDA_DATA_DIR`: the `admin.kubeconfig` there, which must be there;
//! 3. `--context` alone: that context of `$KUBECONFIG`, or else of `~/.kube/config`;
//! 4. `$KUBECONFIG`;
//! 5. the server of the last `remuda login`;
//! 6. `admin.kubeconfig` in the default data directory;
//! 7. `~/.kube/config`.
//!
//! In 4 and 7 a current context that leads into a cluster behind a server is passed over: people switch to clusters to
//! work in them, and go on managing clusters beside that.

use std::{
    env,
    ffi::OsString,
    fmt, fs,
    path::{Path, PathBuf},
};

use kube::config::Kubeconfig;
use remuda_names::{PROGRAM, env as variable, file, gateway};

use crate::{
    failure::{Code, Failure, chain},
    session::Global,
};

/// A context in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    pub file: PathBuf,
    pub context: String,
}

/// A server, and where it is known from.
#[derive(Debug, Clone)]
pub struct Located {
    /// Its current context is the one that is meant.
    pub kubeconfig: Kubeconfig,
    pub url: String,
    pub origin: Origin,
}

/// `https://127.0.0.1:8443 (context remuda of /var/lib/remuda/admin.kubeconfig)`
impl fmt::Display for Located {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (context {} of {})", self.url, self.origin.context, self.origin.file.display())
    }
}

/// What of the process decides, beside what was asked for.
#[derive(Debug, Clone, Default)]
pub(crate) struct Surroundings {
    pub(crate) is_root: bool,
    /// `$KUBECONFIG`; nothing if it is empty.
    pub(crate) kubeconfig: Option<OsString>,
    pub(crate) home: Option<PathBuf>,
    pub(crate) data_home: Option<PathBuf>,
    pub(crate) config_home: Option<PathBuf>,
}

impl Surroundings {
    pub(crate) fn here() -> Surroundings {
        let path = |name: &str| env::var_os(name).map(PathBuf::from);
        let absolute = |name: &str| path(name).filter(|path| path.is_absolute());
        Surroundings {
            is_root: is_root(),
            kubeconfig: env::var_os("KUBECONFIG").filter(|value| !value.is_empty()),
            home: absolute("HOME"),
            data_home: absolute("XDG_DATA_HOME"),
            config_home: absolute("XDG_CONFIG_HOME"),
        }
    }

    /// Where the server keeps its data unless it is told otherwise; the same rule as the server's.
    pub(crate) fn default_data_dir(&self) -> Option<PathBuf> {
        if self.is_root {
            return Some(PathBuf::from(file::ROOT_DATA_DIR));
        }
        match &self.data_home {
            Some(data) => Some(data.join(PROGRAM)),
            None => Some(self.home.as_ref()?.join(".local/share").join(PROGRAM)),
        }
    }

    /// Where `remuda login` notes the server, apart from what kubectl uses and switches.
    pub(crate) fn remembered(&self) -> Option<PathBuf> {
        let base = self.config_home.clone().or_else(|| Some(self.home.as_ref()?.join(".config")))?;
        Some(base.join(PROGRAM).join(file::REMEMBERED_SERVER))
    }

    fn of_kubectl(&self) -> Option<PathBuf> {
        Some(self.home.as_ref()?.join(".kube/config"))
    }
}

/// Who owns this process, as the kernel says.
fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0)
}

/// Finds the server that is meant.
pub(crate) fn locate(asked: &Global, here: &Surroundings) -> Result<Located, Failure> {
    let context = asked.context.as_deref();
    if let Some(path) = &asked.kubeconfig {
        return Files::one(path)?.locate(context);
    }
    if let Some(dir) = &asked.data_dir {
        return Files::one(&admin_kubeconfig(dir)?)?.locate(context);
    }
    let exported = here.kubeconfig.as_ref().map(Files::exported).transpose()?;
    let kubectl = here.of_kubectl().filter(|path| path.exists());
    if context.is_some() {
        let files = match (exported, &kubectl) {
            (Some(files), _) => files,
            (None, Some(path)) => Files::one(path)?,
            (None, None) => {
                let message =
                    "--context names a context in $KUBECONFIG or ~/.kube/config, and there is neither";
                return Err(Failure::new(Code::NotFound, message).hint("name the file with --kubeconfig"));
            }
        };
        return files.locate(context);
    }
    let mut passed_over = None;
    if let Some(files) = exported {
        let located = files.locate(None)?;
        match leads_into_a_cluster(&located.url) {
            false => return Ok(located),
            true => passed_over = Some(located),
        }
    }
    let own = [here.remembered(), here.default_data_dir().map(|dir| dir.join(file::ADMIN_KUBECONFIG))];
    let own: Vec<PathBuf> = own.into_iter().flatten().collect();
    if let Some(path) = own.iter().find(|path| path.exists()) {
        return Files::one(path)?.locate(None);
    }
    if let (None, Some(path)) = (&passed_over, &kubectl) {
        let located = Files::one(path)?.locate(None)?;
        match leads_into_a_cluster(&located.url) {
            false => return Ok(located),
            true => passed_over = Some(located),
        }
    }
    Err(match passed_over {
        Some(located) => no_server_but(&located),
        None => {
            let tried = own.into_iter().chain(here.of_kubectl());
            let tried: Vec<String> = tried.map(|path| path.display().to_string()).collect();
            let message = format!("no server is known: there is no {}", tried.join(" and no "));
            Failure::new(Code::Unreachable, message).hint(
                "log in to one with `remuda login https://HOST:PORT`, start one with `remuda up` or `remuda server`, \
                 or name a kubeconfig with --kubeconfig",
            )
        }
    })
}

/// The administrator's kubeconfig in a data directory that was named. Nothing else is meant then.
fn admin_kubeconfig(dir: &Path) -> Result<PathBuf, Failure> {
    let path = dir.join(file::ADMIN_KUBECONFIG);
    if path.exists() {
        return Ok(path);
    }
    let message = format!(
        "there is no {}: no server has been started on the data directory that --data-dir or ${} names",
        path.display(),
        variable::DATA_DIR
    );
    Err(Failure::new(Code::NotFound, message).hint(format!(
        "start one with `remuda server --data-dir {}`, or leave the directory out to use another server",
        dir.display()
    )))
}

/// All there is leads into a cluster.
fn no_server_but(located: &Located) -> Failure {
    let Origin { file, context } = &located.origin;
    let message = format!(
        "no server is known: context {context} of {} leads into a cluster ({}), not to the server it belongs to",
        file.display(),
        located.url
    );
    let url = located.url.split(gateway::path::CLUSTERS).next().unwrap_or_default();
    let others = &located.kubeconfig;
    let others = others.contexts.iter().map(|known| known.name.as_str());
    let other = others.into_iter().find(|name| {
        let server = server_of(&located.kubeconfig, name);
        server.is_some_and(|server| server.trim_end_matches('/') == url)
    });
    let hint = match other {
        Some(other) => format!("add --context {other}, or log in: remuda login {url}"),
        None => format!("log in to the server: remuda login {url}"),
    };
    Failure::new(Code::Unreachable, message).hint(hint)
}

/// Whether an address is that of a cluster behind a server.
fn leads_into_a_cluster(url: &str) -> bool {
    url.contains(gateway::path::CLUSTERS)
}

fn server_of<'a>(kubeconfig: &'a Kubeconfig, context: &str) -> Option<&'a str> {
    let context = kubeconfig.contexts.iter().find(|known| known.name == context)?.context.as_ref()?;
    let cluster = kubeconfig.clusters.iter().find(|known| known.name == context.cluster)?;
    cluster.cluster.as_ref()?.server.as_deref()
}

/// A kubeconfig, of one file or put together from several.
struct Files {
    kubeconfig: Kubeconfig,
    files: Vec<PathBuf>,
}

impl Files {
    fn one(path: &Path) -> Result<Files, Failure> {
        Ok(Files { kubeconfig: read(path)?, files: vec![path.to_owned()] })
    }

    /// As kubectl puts them together: the first that has something has it, and what is not there is passed by.
    fn exported(value: &OsString) -> Result<Files, Failure> {
        let named = env::split_paths(value).filter(|path| !path.as_os_str().is_empty());
        let files: Vec<PathBuf> = named.filter(|path| path.exists()).collect();
        if files.is_empty() {
            let message = format!("$KUBECONFIG names {}, which is not there", value.to_string_lossy());
            return Err(Failure::new(Code::NotFound, message).hint(
                "unset it, or name a kubeconfig with --kubeconfig or a data directory with --data-dir",
            ));
        }
        let mut kubeconfig = Kubeconfig::default();
        for path in &files {
            let merged = kubeconfig.merge(read(path)?);
            kubeconfig =
                merged.map_err(|error| unusable(&format!("$KUBECONFIG, {}", path.display()), &error))?;
        }
        Ok(Files { kubeconfig, files })
    }

    fn shown(&self) -> String {
        let shown: Vec<String> = self.files.iter().map(|path| path.display().to_string()).collect();
        shown.join(":")
    }

    /// The context that is meant, the file it is in, and where it leads.
    fn locate(mut self, named: Option<&str>) -> Result<Located, Failure> {
        let current = self.kubeconfig.current_context.as_deref().filter(|current| !current.is_empty());
        let Some(context) = named.or(current).map(str::to_owned) else {
            let failure = Failure::invalid(format!("{} has no current context", self.shown()));
            return Err(failure.hint(self.contexts()));
        };
        if !self.kubeconfig.contexts.iter().any(|known| known.name == context) {
            let failure =
                Failure::new(Code::NotFound, format!("there is no context {context} in {}", self.shown()));
            return Err(failure.hint(self.contexts()));
        }
        let Some(url) = server_of(&self.kubeconfig, &context).map(str::to_owned) else {
            let message = format!("context {context} of {} leads to no server", self.shown());
            return Err(Failure::invalid(message).hint(self.contexts()));
        };
        let has = |file: &&PathBuf| {
            self.files.len() == 1
                || Kubeconfig::read_from(file)
                    .is_ok_and(|read| read.contexts.iter().any(|known| known.name == context))
        };
        let file = self.files.iter().find(has).or(self.files.first()).cloned().unwrap_or_default();
        let file = std::path::absolute(&file).unwrap_or(file);
        self.kubeconfig.current_context = Some(context.clone());
        Ok(Located { kubeconfig: self.kubeconfig, url, origin: Origin { file, context } })
    }

    fn contexts(&self) -> String {
        let names: Vec<&str> = self.kubeconfig.contexts.iter().map(|known| known.name.as_str()).collect();
        match names.as_slice() {
            [] => "name another file with --kubeconfig".to_owned(),
            names => format!("name one with --context: {}", names.join(", ")),
        }
    }
}

pub(crate) fn unusable(origin: &str, error: &dyn std::error::Error) -> Failure {
    Failure::new(Code::Unreachable, format!("{origin}: {}", chain(error)))
        .hint("name another kubeconfig with --kubeconfig, or another context with --context")
}

fn read(path: &Path) -> Result<Kubeconfig, Failure> {
    Kubeconfig::read_from(path).map_err(|error| {
        let code = if path.exists() { Code::Invalid } else { Code::NotFound };
        let failure = Failure::new(code, format!("read {}: {}", path.display(), chain(&error)));
        failure.hint(
            "start a server with `remuda up` or `remuda server`, or name its kubeconfig with --kubeconfig",
        )
    })
}

#[cfg(test)]
mod tests;

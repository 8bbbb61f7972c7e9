//! `remuda cluster edit`.

use std::{env, ffi::OsString, io::Write, path::Path, process::Command};

use serde_json::Value;

use super::Wait;
use crate::{
    api,
    failure::{Code, Failure},
    gather,
    object::Object,
    output,
    progress::Goal,
    session::Session,
};

/// Lines that begin like this are ours and not part of the object.
const REMARK: &str = "#";

pub(super) async fn run(session: &Session, name: &str, wait: Wait) -> Result<(), Failure> {
    let editor = editor();
    let namespace = session.namespace.as_str();
    let original = gather::existing(session, namespace, name).await?;
    let changed = edit(session, original, |text| open(&editor, text)).await?;
    if !changed {
        session.out.line(&format!("cluster {name} is unchanged"));
        return Ok(());
    }
    session.out.line(&format!("cluster {name} changed"));
    wait.until(session, name, Goal::Ready).await
}

/// Lets `open` change the text until the server takes it, or until it is left as it is.
async fn edit(
    session: &Session,
    original: Object,
    mut open: impl FnMut(&str) -> Result<String, Failure>,
) -> Result<bool, Failure> {
    let name = original.name().to_owned();
    let shown = editable(original);
    let before = output::yaml(&shown)?;
    let mut text = before.clone();
    let mut complaint = String::new();
    loop {
        let header = header(&name, &complaint);
        let edited = open(&format!("{header}{text}"))?;
        let edited = strip(&edited);
        if edited.trim().is_empty() || edited == before {
            return Ok(false);
        }
        if !complaint.is_empty() && edited == text {
            let failure = Failure::invalid(format!("cluster {name} was not changed: {complaint}"));
            return Err(failure.hint("the file was left as it was refused"));
        }
        text = edited;
        match submit(session, &shown, &text).await {
            Ok(changed) => return Ok(changed),
            Err(failure) if matches!(failure.code, Code::Invalid | Code::Conflict | Code::Forbidden) => {
                complaint = match failure.hint {
                    Some(hint) => format!("{}\n{hint}", failure.message),
                    None => failure.message,
                };
            }
            Err(failure) => return Err(keep(failure, &text)),
        }
    }
}

/// What was written is not lost with the server.
fn keep(failure: Failure, text: &str) -> Failure {
    let kept =
        tempfile::Builder::new().prefix("remuda-edit-").suffix(".yaml").tempfile().and_then(|mut file| {
            file.write_all(text.as_bytes())?;
            file.keep().map_err(|error| error.error)
        });
    match kept {
        Ok((_, path)) => failure.hint(format!("your changes are in {}", path.display())),
        Err(_) => failure,
    }
}

async fn submit(session: &Session, shown: &Object, text: &str) -> Result<bool, Failure> {
    let value: Value = serde_saphyr::from_str(text)
        .map_err(|error| Failure::invalid(format!("this is not YAML: {}", error.without_snippet())))?;
    let mut object = Object(value);
    if object == *shown {
        return Ok(false);
    }
    let same = |pointer: &str| object.text(pointer) == shown.text(pointer);
    if !same("/metadata/name") || !same("/metadata/namespace") || !same("/kind") || !same("/apiVersion") {
        return Err(Failure::invalid("name, namespace and kind cannot be changed here"));
    }
    // Written against what was read: a change by somebody else in between is refused and not lost.
    object.0["metadata"]["resourceVersion"] = shown.0["metadata"]["resourceVersion"].clone();
    let namespace = Some(shown.namespace());
    let clusters = api::provisioning_clusters();
    match api::replace(&session.client, &clusters, namespace, &object, false).await {
        Ok(_) => Ok(true),
        Err(failure) if failure.code == Code::Conflict => {
            let message = "somebody else changed the cluster meanwhile: leave the editor and begin again";
            Err(Failure::new(Code::Conflict, message))
        }
        Err(failure) => Err(failure),
    }
}

/// What people can change, and what the server needs to know it by.
fn editable(object: Object) -> Object {
    let mut object = object.presentable();
    if let Some(map) = object.0.as_object_mut() {
        map.remove("status");
    }
    if let Some(metadata) = object.0.get_mut("metadata").and_then(Value::as_object_mut) {
        for key in ["creationTimestamp", "generation", "uid", "selfLink"] {
            metadata.remove(key);
        }
    }
    object
}

fn header(name: &str, complaint: &str) -> String {
    let mut lines = Vec::new();
    if !complaint.is_empty() {
        lines.push("Refused:".to_owned());
        lines.extend(complaint.lines().map(|line| format!("  {line}")));
        lines.push(String::new());
    }
    lines.push(format!("Cluster {name}. Lines that begin with # are ignored."));
    lines.push("Leave it as it is, or empty it, to change nothing.".to_owned());
    lines.iter().map(|line| format!("{}\n", format!("{REMARK} {line}").trim_end())).collect()
}

/// Without our remarks, which are on top.
fn strip(text: &str) -> String {
    let remarks = text.split_inclusive('\n').take_while(|line| line.starts_with(REMARK));
    let start = remarks.map(str::len).sum::<usize>();
    text.get(start..).unwrap_or_default().to_owned()
}

fn editor() -> OsString {
    let named = ["KUBE_EDITOR", "VISUAL", "EDITOR"]
        .into_iter()
        .filter_map(env::var_os)
        .find(|value| !value.is_empty());
    named.unwrap_or_else(|| "vi".into())
}

/// Opens the text in the editor. Its command line is the shell's to read, as people expect of $EDITOR.
fn open(editor: &OsString, text: &str) -> Result<String, Failure> {
    let failed = |error: std::io::Error| Failure::new(Code::Other, format!("edit a file: {error}"));
    let mut file = tempfile::Builder::new().prefix("remuda-").suffix(".yaml").tempfile().map_err(failed)?;
    file.write_all(text.as_bytes()).and_then(|()| file.flush()).map_err(failed)?;
    run_editor(editor, file.path())?;
    std::fs::read_to_string(file.path()).map_err(failed)
}

fn run_editor(editor: &OsString, path: &Path) -> Result<(), Failure> {
    let mut script = editor.clone();
    script.push(" \"$1\"");
    let status = Command::new("sh").arg("-c").arg(script).arg("sh").arg(path).status();
    let shown = editor.to_string_lossy();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => {
            Err(Failure::new(Code::Other, format!("{shown} ended with {status}; nothing was changed"))
                .hint("set EDITOR to the editor to use"))
        }
        Err(error) => Err(Failure::new(Code::Other, format!("start {shown}: {error}"))
            .hint("set EDITOR to the editor to use")),
    }
}

#[cfg(test)]
mod tests;

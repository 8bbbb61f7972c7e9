//! `remuda machine orphans`: servers nobody knows any more.

use std::collections::BTreeSet;

use jiff::Timestamp;
use remuda_names::rancher::group;

use crate::{
    age, api,
    failure::{Code, Failure},
    hooks::Present,
    object::Object,
    output::Format,
    session::Session,
    table::Table,
};

pub(super) async fn run(session: &Session, driver: Option<&str>, format: Format) -> Result<(), Failure> {
    let Some(hook) = &session.hooks.orphans else {
        return Err(Failure::new(Code::Other, "this program cannot ask providers for their servers"));
    };
    // Asked before what is known: a server that is made in between is known when its provider has it.
    let present = hook.present(&session.client, driver, session.data_dir.clone()).await?;
    let drivers: BTreeSet<&str> = present.iter().map(|server| server.driver.as_str()).collect();
    let mut known = Vec::new();
    for driver in drivers {
        known.extend(
            api::list(&session.client, &api::driver(group::MACHINE, &kind(driver)), None, api::Which::All)
                .await?,
        );
    }
    let orphans = orphans(present, &known);
    match format {
        Format::Json | Format::Yaml => session.out.document(&orphans, format),
        Format::Name => {
            orphans.iter().for_each(|server| session.out.line(&format!("{}/{}", server.driver, server.id)));
            Ok(())
        }
        Format::Table | Format::Wide if orphans.is_empty() => {
            session.out.note("there are none");
            Ok(())
        }
        Format::Table | Format::Wide => {
            let now = Timestamp::now();
            let mut table = Table::new(["DRIVER", "NAME", "AGE", "ID"]);
            for server in &orphans {
                let cells = [&server.driver, &server.name, &age::ago(server.created, now), &server.id];
                table.row(cells.map(|text| text.as_str().into()).to_vec());
            }
            session.out.text(&table.render(""));
            Ok(())
        }
    }
}

fn kind(driver: &str) -> String {
    let mut letters = driver.chars();
    match letters.next() {
        Some(first) => format!("{}{}Machine", first.to_ascii_uppercase(), letters.as_str()),
        None => "Machine".to_owned(),
    }
}

/// What is present and belongs to no machine.
fn orphans(present: Vec<Present>, known: &[Object]) -> Vec<Present> {
    let names: BTreeSet<(String, &str)> =
        known.iter().map(|server| (server.kind().to_lowercase(), server.name())).collect();
    let mut orphans = present;
    // Providers know machines by names without dots.
    let known = |server: &Present| {
        let kind = kind(&server.driver).to_lowercase();
        names.iter().any(|(known, name)| {
            *known == kind && (*name == server.name || name.replace('.', "-") == server.name)
        })
    };
    orphans.retain(|server| !known(server));
    orphans.sort_by(|one, other| {
        (&one.driver, &one.name, &one.id).cmp(&(&other.driver, &other.name, &other.id))
    });
    orphans
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn servers_of_known_machines_are_no_orphans() {
        let present = |driver: &str, name: &str| Present {
            driver: driver.into(),
            name: name.into(),
            id: format!("id-{name}"),
            created: None,
        };
        let known = [
            Object(json!({"kind": "LocalMachine", "metadata": {"name": "a.b"}})),
            Object(json!({"kind": "DigitaloceanMachine", "metadata": {"name": "c"}})),
        ];
        let found = orphans(
            vec![
                present("local", "z"),
                present("local", "a-b"),
                present("local", "c"),
                present("digitalocean", "c"),
            ],
            &known,
        );
        let found: Vec<_> =
            found.iter().map(|server| (server.driver.as_str(), server.name.as_str())).collect();
        assert_eq!(found, [("local", "c"), ("local", "z")]);
    }
}

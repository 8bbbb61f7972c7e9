//! `remuda machine orphans`: servers nobody knows any more.

use clap::Args;

use crate::{
    api::{self, Which},
    failure::{Code, Failure},
    hooks::{Orphan, OrphanQuery},
    object::Object,
    output::Format,
    session::Session,
    table::Table,
};

#[derive(Args, Debug)]
pub struct FindOrphans {
    /// Of this driver; can be repeated [default: all active ones]
    #[arg(long = "driver", value_name = "DRIVER")]
    pub drivers: Vec<String>,

    /// With this credential, the name of a Secret in cattle-global-data [default: all there are]
    #[arg(long, value_name = "SECRET")]
    pub credential: Option<String>,

    /// A flag of the driver that says where to look, such as amazonec2-region=eu-west-1; can be repeated
    /// [default: everywhere its configurations name]
    #[arg(long = "flag", value_name = "NAME=VALUE")]
    pub flags: Vec<String>,

    /// How to print them
    #[arg(long, short, value_enum, default_value_t = Format::Table)]
    pub output: Format,
}

pub(super) async fn run(session: &Session, arguments: FindOrphans) -> Result<(), Failure> {
    let Some(hook) = &session.hooks.orphans else {
        return Err(Failure::new(Code::Other, "this program cannot ask providers for their servers"));
    };
    let flag = |text: &String| match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err(Failure::invalid(format!("flag {text:?} is not NAME=VALUE"))),
    };
    let flags = arguments.flags.iter().map(flag).collect::<Result<Vec<_>, Failure>>()?;
    let named = !arguments.drivers.is_empty();
    let drivers = if named { arguments.drivers } else { active(session).await? };
    let (mut orphans, mut problems, mut caveats) = (Vec::new(), Vec::new(), Vec::new());
    for driver in drivers {
        let query = OrphanQuery {
            driver,
            credential: arguments.credential.clone(),
            flags: flags.clone(),
            data_dir: session.data_dir.clone(),
        };
        let report = hook.find(session.client.clone(), query).await?;
        orphans.extend(report.found);
        problems.extend(report.problems);
        caveats.extend(report.caveats);
    }
    orphans.sort_by(|one, other| {
        (&one.driver, &one.name, &one.id).cmp(&(&other.driver, &other.name, &other.id))
    });
    print(session, &orphans, arguments.output)?;
    for caveat in &caveats {
        session.out.note(caveat);
    }
    for problem in &problems {
        session.out.note(&format!("could not be asked: {problem}"));
    }
    // Whoever names a driver wants to know about it.
    match named && !problems.is_empty() {
        true => Err(Failure::silent(Code::Other)),
        false => Ok(()),
    }
}

async fn active(session: &Session) -> Result<Vec<String>, Failure> {
    let drivers = api::list(&session.client, &api::management("NodeDriver"), None, Which::All).await?;
    let active = drivers.iter().filter(|driver| driver.flag("/spec/active"));
    Ok(active.map(Object::name).map(str::to_owned).collect())
}

fn print(session: &Session, orphans: &[Orphan], format: Format) -> Result<(), Failure> {
    match format {
        Format::Json | Format::Yaml => return session.out.document(&orphans, format),
        Format::Name => {
            orphans.iter().for_each(|orphan| session.out.line(&format!("{}/{}", orphan.driver, orphan.id)));
        }
        Format::Table | Format::Wide if orphans.is_empty() => session.out.note("there are none"),
        Format::Table | Format::Wide => {
            let mut table = Table::new(["DRIVER", "NAME", "KIND", "CREDENTIAL", "ID"]);
            for Orphan { driver, name, kind, credential, id } in orphans {
                table.row([driver, name, kind, credential, id].map(|text| text.as_str().into()).to_vec());
            }
            // Ids are for other programs, and stay whole.
            session.out.text(&table.render(""));
        }
    }
    Ok(())
}

//! New certificates, one machine after the other: as `rotateCertificates` asks for them, or before they end.

use remuda_distro::certificates::{OF_CONTROL_PLANES, OF_ETCD, OF_NODES};

use super::{Limits, assign_and_check, renderer, renewal};
use crate::{
    entry::Entry,
    output::{Errand, Failure, Waiting, Write},
    planner::{Pass, Stop},
};

/// Servers before those that depend on them.
const ORDER: [fn(&Entry<'_>) -> bool; 4] = [
    |entry| entry.roles.only_etcd(),
    |entry| entry.roles.etcd && entry.roles.control_plane,
    |entry| entry.roles.control_plane && !entry.roles.etcd,
    |entry| entry.roles.only_worker(),
];

/// A rotation: what tells it from others, and of what. No services are all.
pub(crate) struct Rotation<'a> {
    pub(crate) value: &'a str,
    pub(crate) services: &'a [String],
}

pub(crate) fn rotate(pass: &mut Pass<'_>) -> Result<(), Stop> {
    let Some(asked) = &pass.input.control_plane.spec.rotate_certificates else { return Ok(()) };
    if !pass.status.control_plane_initialized()
        || asked.generation == pass.status.certificate_rotation_generation
        || !pass.entries.iter().any(|entry| entry.init && !entry.join_url().is_empty())
    {
        return Ok(());
    }
    let value = asked.generation.to_string();
    carry_out(pass, &Rotation { value: &value, services: &asked.services })?;
    pass.status.certificate_rotation_generation = asked.generation;
    if asked.services.is_empty() {
        renewal::ended(pass);
    }
    Err(Waiting::CertificatesRotated.into())
}

/// Rotates the certificates of one machine after the other. The cluster is paused until it is done.
pub(crate) fn carry_out(pass: &mut Pass<'_>, rotation: &Rotation<'_>) -> Result<(), Stop> {
    let paused = pass.input.cluster.as_ref().is_some_and(|cluster| cluster.paused);
    let renderer = renderer(pass);
    let mut writes = Vec::new();
    let done = ORDER.iter().flat_map(|of| pass.entries.iter().filter(move |entry| of(entry))).try_for_each(
        |entry| {
            if entry.node.is_none()
                || entry.machine.deleting
                || entry.windows
                || !concerns(entry, rotation.services)
            {
                return Ok(());
            }
            let desired = renderer
                .rotation(entry, rotation)
                .map_err(|error| Stop::Failed(Failure::Unrenderable(error)))?;
            let errand = Errand::Certificates { machine: entry.name().to_owned() };
            assign_and_check(&mut writes, entry, &desired, Limits::ENDLESS, errand)
        },
    );
    match done {
        Err(stop) => {
            if !paused {
                pass.writes.push(Write::Pause);
            }
            pass.writes.extend(writes);
            Err(stop)
        }
        Ok(()) => {
            if paused {
                pass.writes.push(Write::Unpause);
            }
            Ok(())
        }
    }
}

/// Whether a machine has certificates of these services. None named is all.
fn concerns(entry: &Entry<'_>, services: &[String]) -> bool {
    let has = |set: &[&str]| services.iter().any(|service| set.contains(&service.as_str()));
    let roles = entry.roles;
    services.is_empty()
        || ((roles.worker || roles.control_plane) && has(OF_NODES))
        || (roles.control_plane && has(OF_CONTROL_PLANES))
        || (roles.etcd && has(OF_ETCD))
}

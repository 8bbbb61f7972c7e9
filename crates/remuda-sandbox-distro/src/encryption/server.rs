//! The steps of a rotation, on a server that runs.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::Node;
use kube::{
    Api, Client, ResourceExt,
    api::{ListParams, Patch, PatchParams},
};
use remuda_base::Backoff;
use remuda_store::{Embedded, Etcd};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::{info, warn};

use super::{Encryption, EncryptionError, FILES, KEY_TYPE, Stage, command::Ask};
use crate::{
    config::Settings,
    etcd::{EtcdError, Members},
    files::FileError,
    pki::{Pki, PkiError},
    snapshot::bundle,
};

#[derive(Debug, thiserror::Error)]
pub enum StepError {
    #[error("secrets encryption is not enabled on this server")]
    Off,
    #[error("{step} is not possible in stage {}", .stage.name())]
    Stage { step: &'static str, stage: Stage },
    /// K3s says it in these words.
    #[error("hash does not match between {0} and {1}")]
    Differ(String, String),
    #[error("rotate-keys needs a single server; with several use prepare, rotate and reencrypt")]
    Several,
    #[error(transparent)]
    Encryption(#[from] EncryptionError),
    #[error(transparent)]
    File(#[from] FileError),
    #[error(transparent)]
    Pki(#[from] PkiError),
    #[error("keep the keys with the state")]
    Etcd(#[from] EtcdError),
    #[error("seal the Secrets anew")]
    Store(#[source] remuda_store::Error),
    #[error("read and write the Nodes of servers")]
    Nodes(#[from] kube::Error),
}

impl StepError {
    /// The step is not possible as things are; nothing was changed.
    pub fn is_refusal(&self) -> bool {
        matches!(self, StepError::Off | StepError::Stage { .. } | StepError::Differ(..) | StepError::Several)
    }
}

/// Where the Secrets are.
pub enum Kept {
    Own(Arc<Embedded>),
    /// At its endpoints the servers share the keys.
    Etcd {
        store: Arc<Etcd>,
        endpoints: Vec<String>,
    },
}

/// What `secrets-encrypt status` tells, in the form of K3s.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    pub stage: String,
    /// Type and name, with a space between.
    pub activekey: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enable: Option<bool>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub hashmatch: bool,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub hasherror: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inactivekeys: Vec<String>,
}

/// The keys for Secrets of a server with state.
pub struct Rotation {
    pub settings: Settings,
    pub pki: Arc<Pki>,
    pub kept: Kept,
    pub client: Client,
    /// Of the servers; the identity in etcd is sealed with it.
    pub password: String,
    pub stop: CancellationToken,
    pub tasks: TaskTracker,
    /// One step at a time.
    pub alone: tokio::sync::Mutex<()>,
}

/// Between two attempts to seal everything.
const BACKOFF: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(60));

impl Rotation {
    pub async fn status(&self) -> Result<Status, StepError> {
        let Some(now) = Encryption::read(&self.settings.paths)? else { return Ok(Status::default()) };
        let differing = match self.compare(&now).await {
            Ok(()) => String::new(),
            Err(error @ StepError::Differ(..)) => error.to_string(),
            Err(error) => return Err(error),
        };
        let mut names = now.names().map(|name| format!("{KEY_TYPE} {name}"));
        Ok(Status {
            enable: Some(true),
            stage: now.stage.name().to_owned(),
            activekey: names.next().unwrap_or_default(),
            hashmatch: differing.is_empty(),
            hasherror: differing,
            inactivekeys: names.collect(),
        })
    }

    /// Makes a step. What goes on after it goes on by itself.
    pub async fn step(self: &Arc<Self>, ask: Ask) -> Result<(), StepError> {
        let alone = self.alone.lock().await;
        let now = Encryption::read(&self.settings.paths)?.ok_or(StepError::Off)?;
        let possible = match ask {
            Ask::Status => return Ok(()),
            Ask::Prepare | Ask::RotateKeys => now.stage.is_at_rest(),
            Ask::Rotate => now.stage == Stage::Prepare,
            Ask::Reencrypt => now.stage == Stage::Rotate || now.stage.is_sealing(),
        };
        if !possible {
            return Err(StepError::Stage { step: ask.word(), stage: now.stage });
        }
        self.compare(&now).await?;
        match ask {
            Ask::Status => {}
            Ask::Prepare => self.apply(&now.prepared()).await?,
            Ask::Rotate => self.apply(&now.rotated()).await?,
            Ask::Reencrypt => {
                self.apply(&now.at(Stage::ReencryptRequest)).await?;
                let this = self.clone();
                drop(alone);
                self.tasks.spawn(async move { this.seal_patiently().await });
                return Ok(());
            }
            Ask::RotateKeys => {
                if self.servers().await?.len() > 1 {
                    return Err(StepError::Several);
                }
                // Each of them is a step that people can go on from.
                let prepared = now.prepared();
                self.apply(&prepared).await?;
                let rotated = prepared.rotated();
                self.apply(&rotated).await?;
                self.apply(&rotated.at(Stage::ReencryptRequest)).await?;
                drop(alone);
                self.seal().await?;
            }
        }
        info!(step = ask.word(), "keys for Secrets changed");
        Ok(())
    }

    /// Goes on where this server was killed.
    pub async fn resume(self: Arc<Self>) {
        match Encryption::read(&self.settings.paths) {
            Ok(Some(now)) if now.stage.is_sealing() => self.seal_patiently().await,
            Ok(_) => {}
            Err(error) => {
                warn!(error = %remuda_control::Chain(&error), "the keys for Secrets cannot be read");
            }
        }
    }

    async fn seal_patiently(&self) {
        let mut backoff = BACKOFF.begin();
        while let Err(error) = self.seal().await {
            warn!(error = %remuda_control::Chain(&error), "not all Secrets are sealed with the new key yet");
            tokio::select! {
                () = self.stop.cancelled() => return,
                () = tokio::time::sleep(backoff.delay()) => {}
            }
        }
    }

    /// Seals everything with the active key, and forgets the others.
    async fn seal(&self) -> Result<(), StepError> {
        let _alone = self.alone.lock().await;
        let Some(now) = Encryption::read(&self.settings.paths)? else { return Ok(()) };
        if !now.stage.is_sealing() {
            return self.tell(&now).await;
        }
        // A server that was not started again since may still use the old one. The others know the new one: without
        // that there would have been no request.
        self.pki
            .keyring
            .take(&now.keyring().map_err(EncryptionError::from)?.text())
            .map_err(EncryptionError::from)?;
        let active = now.at(Stage::ReencryptActive);
        self.apply(&active).await?;
        match &self.kept {
            Kept::Own(store) => store.checkpoint().await.map_err(StepError::Store)?,
            Kept::Etcd { store, .. } => {
                let sealed = store.reseal().await.map_err(StepError::Store)?;
                info!(sealed, "Secrets sealed with the new key");
            }
        }
        self.apply(&active.finished()).await
    }

    /// In etcd first: what is there counts, and a server that is killed now takes it over when it starts again.
    async fn apply(&self, next: &Encryption) -> Result<(), StepError> {
        if let Kept::Etcd { endpoints, .. } = &self.kept {
            let mut files = self.pki.shared()?;
            files.extend(next.files().map(|(name, text)| (name.to_owned(), text)));
            let etcd = Members::new(&self.settings.paths, endpoints.clone())?;
            etcd.put(&bundle::name(&self.password), &bundle::seal(&self.password, &files)).await?;
        }
        next.write(&self.settings.paths)?;
        self.tell(next).await
    }

    /// On the Node of this server, which others compare with theirs.
    async fn tell(&self, now: &Encryption) -> Result<(), StepError> {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let annotations = BTreeMap::from([(self.annotation(), now.mark())]);
        let patch = Patch::Merge(json!({"metadata": {"annotations": annotations}}));
        nodes.patch(&self.settings.node_name, &PatchParams::default(), &patch).await?;
        Ok(())
    }

    fn annotation(&self) -> String {
        self.settings.distribution.encryption_annotation()
    }

    /// Servers with state of their own, and what they tell of themselves.
    async fn servers(&self) -> Result<Vec<(String, Option<String>)>, StepError> {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let listed = nodes.list(&ListParams::default()).await?;
        let shared = matches!(self.kept, Kept::Etcd { .. });
        let is_server = |node: &Node| {
            ["control-plane", "etcd"]
                .iter()
                .any(|role| node.labels().contains_key(&format!("node-role.kubernetes.io/{role}")))
        };
        let told = |node: &Node| (node.name_any(), node.annotations().get(&self.annotation()).cloned());
        // Where one server keeps the state for all, the others have no keys to tell of.
        let told = listed.items.iter().filter(|node| is_server(node)).map(told);
        Ok(told.filter(|(name, mark)| shared || mark.is_some() || *name == self.settings.node_name).collect())
    }

    /// Every server has the keys this one has.
    async fn compare(&self, now: &Encryption) -> Result<(), StepError> {
        let own = &self.settings.node_name;
        let mark = now.mark();
        let servers = self.servers().await?;
        match servers.into_iter().find(|(name, told)| name != own && told.as_ref() != Some(&mark)) {
            Some((other, _)) => Err(StepError::Differ(own.clone(), other)),
            None => Ok(()),
        }
    }
}

/// What an identity from elsewhere says about keys for Secrets, if it says anything.
pub(crate) fn of_identity(files: &BTreeMap<String, String>) -> Option<[(&'static str, Option<String>); 2]> {
    files.contains_key(FILES[0]).then(|| FILES.map(|name| (name, files.get(name).cloned())))
}

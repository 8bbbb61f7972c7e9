//! The state Secret, as one run of a job holds it.

use std::{collections::BTreeMap, time::Duration};

use k8s_openapi::{ByteString, api::core::v1::Secret};
use kube::{Api, Client, api::PostParams};
use remuda_base::Backoff;
use remuda_drivers::error::Class;
use remuda_names::{machines::annotation, rancher::secret_key};
use tokio::{sync::Mutex, time::Instant};

use super::{Action, Args, Failure};
use crate::error::{is_conflict, is_missing};

/// The Secret of one machine. Of several runs the latest to claim it may write; the others end.
pub(super) struct Remote {
    api: Api<Secret>,
    name: String,
    run: String,
    /// A job that creates ends where creation is barred.
    creates: bool,
    patience: Duration,
    held: Mutex<Option<Secret>>,
}

/// Why the Secret was not written.
enum Refused {
    /// Somebody wrote it.
    Stale,
    Final(Failure),
    Lost(kube::Error),
}

fn is_barred(secret: &Secret) -> bool {
    let annotations = secret.metadata.annotations.as_ref();
    annotations.and_then(|all| all.get(annotation::CREATION_BARRED)).is_some_and(|yes| yes == "true")
}

fn barred() -> Failure {
    Failure::new(Class::Other, "the machine is being deleted, so its server is not made").before_creation()
}

impl Remote {
    pub(super) fn new(client: Client, args: &Args, patience: Duration) -> Self {
        Self {
            api: Api::namespaced(client, &args.secret_namespace),
            name: args.secret_name.clone(),
            creates: matches!(args.action, Action::Create(_)),
            run: format!("{:016x}", rand::random::<u64>()),
            patience,
            held: Mutex::default(),
        }
    }

    /// Makes this run the one that may write, and gives what is recorded.
    pub(super) async fn claim(&self) -> Result<Vec<u8>, Failure> {
        let mut held = self.held.lock().await;
        let secret = self.patiently(async || self.take().await).await?;
        let archive = secret.data.as_ref().and_then(|data| data.get(secret_key::EXTRACTED_CONFIG));
        let archive = archive.map(|archive| archive.0.clone()).unwrap_or_default();
        *held = Some(secret);
        Ok(archive)
    }

    async fn take(&self) -> Result<Secret, Refused> {
        let mut secret = self.api.get(&self.name).await.map_err(|error| self.refused(error))?;
        if self.creates && is_barred(&secret) {
            return Err(Refused::Final(barred()));
        }
        let annotations = secret.metadata.annotations.get_or_insert_default();
        annotations.insert(annotation::RUN.to_owned(), self.run.clone());
        self.put(&secret).await
    }

    /// Records an archive, or that there is nothing any more. What is recorded already is not written.
    pub(super) async fn save(&self, archive: Option<Vec<u8>>) -> Result<(), Failure> {
        self.write(archive, false).await
    }

    /// Records that the server is begun, unless creation was barred before. Of a bar and a beginning that meet, the
    /// API takes one first, and the other sees it.
    pub(super) async fn begin(&self, archive: Vec<u8>) -> Result<(), Failure> {
        self.write(Some(archive), true).await
    }

    async fn write(&self, archive: Option<Vec<u8>>, begins: bool) -> Result<(), Failure> {
        let mut held = self.held.lock().await;
        let Some(secret) = held.as_mut() else {
            return Err(Failure::new(Class::Other, "the state of the machine was not claimed"));
        };
        if begins && is_barred(secret) {
            return Err(barred());
        }
        let data = secret.data.get_or_insert_with(BTreeMap::new);
        let content = archive.map(ByteString);
        if data.get(secret_key::EXTRACTED_CONFIG) == content.as_ref() {
            return Ok(());
        }
        match content {
            Some(content) => data.insert(secret_key::EXTRACTED_CONFIG.to_owned(), content),
            None => data.remove(secret_key::EXTRACTED_CONFIG),
        };
        let mut wanted = secret.clone();
        *secret = self
            .patiently(async || match self.put(&wanted).await {
                Err(Refused::Stale) => {
                    // Labels and the like are anybody's to change; the claim is not.
                    let now = self.api.get(&self.name).await.map_err(|error| self.refused(error))?;
                    let run = now.metadata.annotations.as_ref().and_then(|all| all.get(annotation::RUN));
                    if run != Some(&self.run) {
                        let message = "another job has taken over the machine";
                        return Err(Refused::Final(Failure::new(Class::Other, message)));
                    }
                    if begins && is_barred(&now) {
                        return Err(Refused::Final(barred()));
                    }
                    wanted.metadata = now.metadata;
                    Err(Refused::Stale)
                }
                outcome => outcome,
            })
            .await?;
        Ok(())
    }

    async fn put(&self, secret: &Secret) -> Result<Secret, Refused> {
        let written = self.api.replace(&self.name, &PostParams::default(), secret).await;
        written.map_err(|error| self.refused(error))
    }

    fn refused(&self, error: kube::Error) -> Refused {
        if is_conflict(&error) {
            return Refused::Stale;
        }
        if is_missing(&error) {
            let message = format!("the Secret {} with the state of the machine does not exist", self.name);
            return Refused::Final(Failure::new(Class::Other, message));
        }
        match &error {
            kube::Error::Api(status) if (400..500).contains(&status.code) && status.code != 429 => {
                let message = format!("write the state of the machine: {}", remuda_control::Chain(&error));
                Refused::Final(Failure::new(Class::Other, message))
            }
            _ => Refused::Lost(error),
        }
    }

    /// The API may be restarting: what has to be recorded is worth waiting for.
    async fn patiently(
        &self,
        mut attempt: impl AsyncFnMut() -> Result<Secret, Refused>,
    ) -> Result<Secret, Failure> {
        let deadline = Instant::now() + self.patience;
        let mut row = Backoff::new(Duration::from_millis(50), Duration::from_secs(5)).begin();
        loop {
            let lost = match attempt().await {
                Ok(secret) => return Ok(secret),
                Err(Refused::Final(failure)) => return Err(failure),
                Err(Refused::Stale) => "it changes all the time".to_owned(),
                Err(Refused::Lost(error)) => remuda_control::Chain(&error).to_string(),
            };
            if Instant::now() >= deadline {
                return Err(Failure::new(Class::Network, format!("record the state of the machine: {lost}")));
            }
            tokio::time::sleep(row.delay()).await;
        }
    }
}

//! Which kinds an API has, asked of itself and remembered until it changes.

use std::{collections::HashMap, sync::Arc, time::Duration};

use futures::{StreamExt, stream};
use http::{Request, StatusCode, header};
use kube::Client;
use parking_lot::Mutex;
use remuda_door::Refusal;
use serde_json::Value;
use tokio::time::Instant;

use crate::{
    answer::refused,
    kind::{Catalogue, Column, Kind},
    table::{Table, table_request},
};

const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
/// Kinds whose columns are asked for at one time.
const AT_ONCE: usize = 16;
/// Kinds of an API. One with more is not looked at: it would be kept for as long as the server runs.
const MOST_KINDS: usize = 4_000;
/// Columns of a kind, and bytes of what is said of one.
const MOST_COLUMNS: usize = 32;
const LONGEST: usize = 1024;
/// Bytes of the columns of all kinds.
const MOST_BYTES: usize = 8 << 20;
/// A catalogue is taken again for so long after definitions changed: they are served a moment after they are stored.
const SETTLES: Duration = Duration::from_secs(2);
/// A kind that is not known is looked for again, but not more often than this.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// The definitions of kinds. When they change, so does the catalogue.
pub(crate) fn definitions() -> Arc<Kind> {
    Arc::new(Kind {
        // Not the id of the schema: that index has columns and is for callers.
        id: "definitions of the catalogue".to_owned(),
        plural: "customresourcedefinitions".to_owned(),
        group: "apiextensions.k8s.io".to_owned(),
        version: "v1".to_owned(),
        kind: "CustomResourceDefinition".to_owned(),
        resource: "customresourcedefinitions".to_owned(),
        ..Kind::default()
    })
}

/// All kinds of an API, with their columns.
pub(crate) async fn discover(client: &Client) -> Result<Catalogue, Refusal> {
    let document = async |path: &str| -> Result<Value, Refusal> {
        let request = Request::get(path).header(header::ACCEPT, AGGREGATED).body(Vec::new());
        let request = request.map_err(|_| Refusal::not_found())?;
        client.request(request).await.map_err(refused)
    };
    let (core, groups) = (document("/api").await?, document("/apis").await?);
    let catalogue = Catalogue::from_discovery(&[core, groups]);
    if catalogue.all().count() > MOST_KINDS {
        let message = format!("the cluster has more than {MOST_KINDS} kinds");
        return Err(Refusal::new(StatusCode::BAD_GATEWAY, message));
    }
    let listed: Vec<Arc<Kind>> = catalogue.all().filter(|kind| kind.has_verb("list")).cloned().collect();
    let mut columns = stream::iter(listed)
        .map(|kind| async move { (kind.id.clone(), columns(client, &kind).await) })
        .buffer_unordered(AT_ONCE)
        .collect::<HashMap<String, Vec<Column>>>()
        .await;
    let mut left = MOST_BYTES;
    columns.retain(|_, columns| {
        let fits = left.checked_sub(columns.iter().map(Column::weight).sum());
        left = fits.unwrap_or(left);
        fits.is_some()
    });
    Ok(catalogue.with_columns(columns))
}

/// Columns of a kind; none where it cannot be asked.
async fn columns(client: &Client, kind: &Kind) -> Vec<Column> {
    let Some(request) = table_request(&format!("{}?limit=1&includeObject=None", kind.path("", ""))) else {
        return Vec::new();
    };
    match client.request::<Table>(request).await {
        Ok(table) => {
            let columns = table.columns.unwrap_or_default().into_iter().take(MOST_COLUMNS);
            columns.map(|column| column.cut(LONGEST)).collect()
        }
        Err(error) => {
            tracing::debug!(kind = kind.id, %error, "columns of a kind are not known");
            Vec::new()
        }
    }
}

/// A catalogue, and what it was made of.
#[derive(Clone)]
struct Known {
    catalogue: Arc<Catalogue>,
    at: Instant,
    changes: u64,
}

/// The newest catalogue of one API.
#[derive(Default)]
pub(crate) struct Remembered {
    known: Mutex<Option<Known>>,
    /// One asks, others wait for the answer.
    asking: tokio::sync::Mutex<()>,
}

impl Remembered {
    /// `changes` counts changes of definitions, `changed` says when the last one was.
    pub(crate) async fn get(
        &self,
        client: &Client,
        changes: u64,
        changed: Option<Instant>,
        longest: Option<Duration>,
    ) -> Result<Arc<Catalogue>, Refusal> {
        let good = || {
            self.known.lock().clone().filter(|known| {
                let settled = changed.is_none_or(|changed| {
                    known.at >= changed + SETTLES || (known.at.elapsed() < SETTLES / 4 && known.at > changed)
                });
                known.changes == changes
                    && settled
                    && longest.is_none_or(|longest| known.at.elapsed() < longest)
            })
        };
        if let Some(known) = good() {
            return Ok(known.catalogue);
        }
        let _one = self.asking.lock().await;
        if let Some(known) = good() {
            return Ok(known.catalogue);
        }
        let at = Instant::now();
        let catalogue = Arc::new(discover(client).await?);
        *self.known.lock() = Some(Known { catalogue: catalogue.clone(), at, changes });
        Ok(catalogue)
    }

    /// Lets go of a catalogue in which a kind was not found, if it is not brand new.
    pub(crate) fn look_again(&self) -> bool {
        let mut known = self.known.lock();
        let old = known.as_ref().is_some_and(|known| known.at.elapsed() > LOOK_AGAIN);
        if old {
            *known = None;
        }
        old
    }
}

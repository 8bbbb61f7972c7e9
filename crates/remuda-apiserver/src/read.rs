//! GET and LIST.

use std::{collections::HashMap, sync::Arc};

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use bytes::Bytes;
use remuda_store::{ListQuery, Record, Revision};
use serde_json::{Value, json};

use crate::{
    body::{Body, Items},
    call::{Answer, Call},
    convert::is_served_form,
    filter::Filter,
    index::Asked,
    negotiate::{Encoding, Shape, response_form},
    options::{ListOptions, VersionMatch, parse_version},
    registry::Resource,
    represent,
    server::Inner,
    status::{ApiError, ApiResult, Named},
    typeless,
};

/// How long a read waits for a revision that is not there yet.
const FUTURE_WAIT: std::time::Duration = std::time::Duration::from_secs(3);
/// Records read at a time while looking for matches of a selector.
const SCAN: usize = 500;

impl Inner {
    pub(crate) async fn get(&self, call: &Call) -> ApiResult<Answer> {
        let form = response_form(&call.headers, false)?;
        let record = match parse_version(call.query.get("resourceVersion").unwrap_or_default())? {
            Some(version) => {
                self.wait_for_revision(version).await?;
                self.seen_record(call).await?
            }
            None => self.record(call).await?,
        };
        if form.shape == Shape::Object
            && form.encoding == Encoding::Json
            && !call.pretty
            && call.subresource() != "scale"
            && is_served_form(&call.resource, &record)
        {
            return Ok(Answer::bytes(200, record.value.clone()));
        }
        let object = self.decode(&call.resource, &record).await?;
        let include = represent::IncludeObject::parse(&call.query);
        if call.subresource() == "scale" {
            let scale = crate::scale::of(&call.resource, &object)?;
            return Ok(Answer::value(200, represent::shape_scale(scale, form, include, self.now()), form));
        }
        let object = represent::shape_object(&call.resource, object, form, include, self.now());
        Ok(Answer::value(200, object, form))
    }

    /// The record a request names, or 404.
    pub(crate) async fn record(&self, call: &Call) -> ApiResult<Arc<Record>> {
        let found = self.store.get(&call.key()).await.map_err(store_error)?;
        found.value.ok_or_else(|| ApiError::not_found(call.named()))
    }

    /// The record as this process has seen it last, which needs no answer from anybody: for those who
    /// named a version that is enough for them.
    async fn seen_record(&self, call: &Call) -> ApiResult<Arc<Record>> {
        match self.store.get_many(&[call.key()], Some(self.store.observed())).await {
            Ok(found) => {
                found.value.into_iter().next().flatten().ok_or_else(|| ApiError::not_found(call.named()))
            }
            // So much was written meanwhile that this is history already.
            Err(remuda_store::Error::Compacted { .. }) => self.record(call).await,
            Err(error) => Err(store_error(error)),
        }
    }

    pub(crate) async fn wait_for_revision(&self, revision: Revision) -> ApiResult<()> {
        if revision > self.store.observed()
            && tokio::time::timeout(FUTURE_WAIT, self.store.wait_for(revision)).await.is_err()
        {
            return Err(ApiError::version_too_large(revision, self.store.observed()));
        }
        Ok(())
    }

    pub(crate) async fn list(&self, call: &Call) -> ApiResult<Answer> {
        let form = response_form(&call.headers, true)?;
        let options = ListOptions::parse(&call.query)?;
        let filter = Filter::new(&call.resource, &options)?;
        let listed = self.list_records(call, &options, &filter).await?;
        let metadata = listed.metadata();
        let include = represent::IncludeObject::parse(&call.query);
        let as_stored = form.encoding == Encoding::Json
            && !call.pretty
            && listed.records.iter().all(|record| is_served_form(&call.resource, record));
        if as_stored && form.shape != Shape::Object {
            let resource = &call.resource;
            let list = represent::lean_list(resource, &listed.records, &metadata, form, include, self.now())
                .map_err(|error| ApiError::internal(format!("a stored object does not parse: {error}")))?;
            return Ok(Answer::bytes(200, list.into()));
        }
        if as_stored {
            let head = represent::list_head(&call.resource, &metadata);
            let tail = Bytes::from_static(b"]}\n");
            let items = if call.resource.is_custom() {
                Items::new(head, listed.records, tail)
            } else {
                Items::typeless(head, listed.records, tail, &typeless::usual_head(&call.resource))
            };
            return Ok(Answer::body(200, Body::Items(items)));
        }
        let objects = self.decode_all(&call.resource, &listed.records).await?;
        let list = represent::shape_list(&call.resource, objects, metadata, form, include, self.now());
        Ok(Answer::value(200, list, form))
    }

    /// The records a list answers with: filtered, and cut at the limit.
    pub(crate) async fn list_records(
        &self,
        call: &Call,
        options: &ListOptions,
        filter: &Filter,
    ) -> ApiResult<Listed> {
        let prefix = call.resource.collection(call.namespace());
        let mut query = ListQuery { prefix: prefix.clone(), ..Default::default() };
        let mut any = false;
        let mut begun = None;
        if let Some(token) = &options.continue_token {
            if options.resource_version.is_some_and(|version| version != 0) {
                return Err(ApiError::bad_request(
                    "specifying resource version is not allowed when using continue",
                ));
            }
            let token = ContinueToken::decode(token)?;
            let age = token.begun.map(|begun| self.now().as_second().saturating_sub(begun));
            if token.revision > 0 && age.is_some_and(|age| age > PAGES_SECONDS) {
                return Err(expired_continue("", Some(&token.after)));
            }
            begun = token.begun;
            query.at = u64::try_from(token.revision).ok();
            query.after = Some(format!("{prefix}{}", token.after));
        } else if let Some(version) = options.resource_version {
            self.wait_for_revision(version).await?;
            let exact = match options.version_match {
                Some(VersionMatch::Exact) => true,
                Some(VersionMatch::NotOlderThan) => false,
                None => options.limit > 0 && version > 0,
            };
            // Not older than what was named is what this process has seen: that needs no answer of etcd.
            query.at = Some(if exact { version } else { self.store.observed() });
            any = !exact;
        }
        // A name selector is a lookup, not a scan.
        if let Some(name) = filter.only_name() {
            if let (Some(namespace), true) = (call.namespace(), call.resource.namespaced) {
                return self.list_one(call, Some(namespace), name, query.at, filter).await;
            } else if !call.resource.namespaced {
                return self.list_one(call, None, name, query.at, filter).await;
            }
        }
        let exact = query.at.is_some() && !any;
        if let Some(listed) = self.list_indexed(call, options, filter, &query, (exact, begun)).await? {
            return Ok(listed);
        }
        let mut listed = Listed::default();
        let mut seen = 0;
        loop {
            query.limit = match (options.limit, filter.is_open()) {
                (0, _) => 0,
                (limit, true) => limit - listed.records.len(),
                (limit, false) => limit.max(SCAN),
            };
            let page = match self.store.list(query.clone()).await {
                Ok(page) => page,
                Err(remuda_store::Error::Compacted { .. }) if options.continue_token.is_some() => {
                    return Err(expired_continue(&prefix, query.after.as_deref()));
                }
                // So much was written meanwhile that what was seen is history already.
                Err(remuda_store::Error::Compacted { .. }) if std::mem::take(&mut any) => {
                    query.at = None;
                    continue;
                }
                Err(error) => return Err(store_error(error)),
            };
            query.at = Some(page.revision);
            listed.revision = page.revision;
            let mut scanned = 0;
            let converted = self.converted_for(&call.resource, filter, &page.records).await?;
            for record in &page.records {
                scanned += 1;
                let matches = match converted.get(&record.key) {
                    Some(object) => filter.matches_object(object),
                    None => filter.matches(record),
                };
                if matches {
                    listed.records.push(record.clone());
                    if options.limit > 0 && listed.records.len() == options.limit {
                        break;
                    }
                }
            }
            seen += scanned;
            let unscanned = page.records.len() - scanned + page.remaining;
            let over = unscanned == 0 || options.limit == 0;
            if !over {
                query.after = Some(page.records[scanned - 1].key.to_string());
            }
            if !over && listed.records.len() >= options.limit {
                listed.continue_token =
                    Some(self.go_on(page.revision, &prefix, query.after.as_deref(), begun));
                listed.remaining = filter.is_open().then_some(unscanned);
            }
            if over || listed.continue_token.is_some() {
                if !filter.is_open() {
                    self.looked_through(call, filter, &prefix, seen, listed.records.len());
                }
                return Ok(listed);
            }
        }
    }

    /// The token of a list that was cut after a key.
    fn go_on(&self, revision: Revision, prefix: &str, after: Option<&str>, begun: Option<i64>) -> String {
        let after = after.and_then(|after| after.strip_prefix(prefix)).unwrap_or_default().to_owned();
        let begun = Some(begun.unwrap_or_else(|| self.now().as_second()));
        ContinueToken { revision: revision as i64, after, begun }.encode()
    }

    /// The same answered by an index, where one can.
    async fn list_indexed(
        &self,
        call: &Call,
        options: &ListOptions,
        filter: &Filter,
        query: &ListQuery,
        (exact, begun): (bool, Option<i64>),
    ) -> ApiResult<Option<Listed>> {
        if filter.is_open() {
            return Ok(None);
        }
        let asked = Asked { prefix: &query.prefix, at: query.at, exact, after: query.after.as_deref() };
        let Some((revision, keys)) = self.candidates(call, filter, &asked).await? else { return Ok(None) };
        let mut listed = Listed { revision, ..Default::default() };
        let mut seen = 0;
        for chunk in keys.chunks(SCAN) {
            let chunk: Vec<String> = chunk.iter().map(ToString::to_string).collect();
            let found = match self.store.get_many(&chunk, Some(revision)).await {
                Ok(found) => found.value,
                // So much was written meanwhile that this is history already.
                Err(remuda_store::Error::Compacted { .. }) => return Ok(None),
                Err(error) => return Err(store_error(error)),
            };
            let records: Vec<Arc<Record>> = found.into_iter().flatten().collect();
            let converted = self.converted_for(&call.resource, filter, &records).await?;
            for record in records {
                if options.limit > 0 && listed.records.len() == options.limit {
                    let after = listed.records.last().map(|last| &*last.key);
                    listed.continue_token = Some(self.go_on(revision, &query.prefix, after, begun));
                    break;
                }
                seen += 1;
                let matches = match converted.get(&record.key) {
                    Some(object) => filter.matches_object(object),
                    None => filter.matches(&record),
                };
                if matches {
                    listed.records.push(record);
                }
            }
            if listed.continue_token.is_some() {
                break;
            }
        }
        self.metrics.evaluated(&call.resource.group, &call.resource.plural, seen);
        Ok(Some(listed))
    }

    async fn list_one(
        &self,
        call: &Call,
        namespace: Option<&str>,
        name: &str,
        at: Option<Revision>,
        filter: &Filter,
    ) -> ApiResult<Listed> {
        let key = call.resource.key(namespace, name);
        let found = self.store.get_many(&[key], at).await.map_err(store_error)?;
        let mut records: Vec<Arc<Record>> = found.value.into_iter().flatten().collect();
        if let Some(record) = records.first()
            && !self.selects(&call.resource, filter, record).await?
        {
            records.clear();
        }
        Ok(Listed { revision: found.revision, records, ..Default::default() })
    }

    /// The objects a filter must see in the served version because their stored bytes are in another.
    async fn converted_for(
        &self,
        resource: &Resource,
        filter: &Filter,
        records: &[Arc<Record>],
    ) -> ApiResult<HashMap<Arc<str>, Value>> {
        if !filter.reads_content() {
            return Ok(HashMap::new());
        }
        let stale = records.iter().filter(|record| !is_served_form(resource, record));
        let stale: Vec<Arc<Record>> = stale.cloned().collect();
        let objects = self.decode_all(resource, &stale).await?;
        Ok(stale.iter().map(|record| record.key.clone()).zip(objects).collect())
    }

    /// Whether a filter lets a record through, in the version it is served in.
    pub(crate) async fn selects(
        &self,
        resource: &Resource,
        filter: &Filter,
        record: &Record,
    ) -> ApiResult<bool> {
        if filter.reads_content() && !is_served_form(resource, record) {
            return Ok(filter.matches_object(&self.decode(resource, record).await?));
        }
        Ok(filter.matches(record))
    }
}

/// What a list found.
#[derive(Default)]
pub(crate) struct Listed {
    pub(crate) revision: Revision,
    pub(crate) records: Vec<Arc<Record>>,
    continue_token: Option<String>,
    remaining: Option<usize>,
}

impl Listed {
    pub(crate) fn metadata(&self) -> Value {
        let mut metadata = json!({"resourceVersion": self.revision.to_string()});
        if let Some(token) = &self.continue_token {
            metadata["continue"] = token.as_str().into();
            if let Some(remaining) = self.remaining {
                metadata["remainingItemCount"] = remaining.into();
            }
        }
        metadata
    }
}

/// How long the pages of one list can be asked for. Where little is written history reaches back further, but clients
/// are told a time, and that they are told when it is over is part of it.
const PAGES_SECONDS: i64 = 300;

struct ContinueToken {
    /// -1: go on at the newest state, consistent with nothing before.
    revision: i64,
    /// The last key returned, relative to the collection.
    after: String,
    /// When the first page was made, in seconds.
    begun: Option<i64>,
}

impl ContinueToken {
    fn encode(&self) -> String {
        let mut token =
            json!({"v": "meta.k8s.io/v1", "rv": self.revision, "start": format!("{}\u{0}", self.after)});
        if let Some(begun) = self.begun {
            token["begun"] = begun.into();
        }
        URL_SAFE_NO_PAD.encode(token.to_string())
    }

    fn decode(token: &str) -> ApiResult<Self> {
        let bad = |detail: &str| ApiError::bad_request(format!("invalid continue token: {detail}"));
        let bytes = URL_SAFE_NO_PAD.decode(token).map_err(|_| bad("not base64"))?;
        let token: Value = serde_json::from_slice(&bytes).map_err(|_| bad("not JSON"))?;
        if token["v"] != "meta.k8s.io/v1" {
            return Err(bad("unknown version"));
        }
        let revision = token["rv"].as_i64().filter(|revision| *revision != 0 && *revision >= -1);
        let start = token["start"].as_str().filter(|start| !start.split('/').any(|part| part == ".."));
        match (revision, start) {
            (Some(revision), Some(start)) => {
                let after = start.trim_end_matches('\u{0}').to_owned();
                Ok(Self { revision, after, begun: token["begun"].as_i64() })
            }
            _ => Err(bad("incomplete")),
        }
    }
}

fn expired_continue(prefix: &str, after: Option<&str>) -> ApiError {
    let after = after.and_then(|after| after.strip_prefix(prefix)).unwrap_or_default().to_owned();
    let message = "The provided continue parameter is too old to display a consistent list result. You can start a \
                   new list without the continue parameter, or use the continue token in this response to retrieve \
                   the remainder of the results. Continuing with the provided token results in an inconsistent list \
                   - objects that were created, modified, or deleted between the time the first chunk was returned \
                   and now may show up in the list.";
    ApiError {
        continue_token: Some(ContinueToken { revision: -1, after, begun: None }.encode()),
        ..ApiError::expired(message)
    }
}

/// Store failures as API errors. Conflicts and the like are handled where they arise.
pub(crate) fn store_error(error: remuda_store::Error) -> ApiError {
    use remuda_store::Error;
    match error {
        Error::Compacted { requested, oldest } => {
            ApiError::expired(format!("too old resource version: {requested} ({oldest})"))
        }
        Error::Future { requested, current } => ApiError::version_too_large(requested, current),
        Error::TooLarge { limit, .. } => ApiError::too_large(limit),
        Error::Unavailable(cause) => ApiError::unavailable(format!("the store is unavailable: {cause}")),
        Error::Unknown(cause) => {
            ApiError::internal(format!("the outcome of the write is unknown, read the object again: {cause}"))
        }
        Error::Closed => ApiError::unavailable("the server is shutting down"),
        Error::Exists { .. } | Error::Missing | Error::Conflict { .. } => {
            ApiError::internal(error.to_string())
        }
    }
}

/// The error of a create that found the name taken.
pub(crate) fn create_error(error: remuda_store::Error, named: Named<'_>) -> ApiError {
    match error {
        remuda_store::Error::Exists { .. } => ApiError::already_exists(named),
        other => store_error(other),
    }
}

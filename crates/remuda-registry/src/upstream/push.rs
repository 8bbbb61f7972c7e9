//! Putting what is in a bundle into a registry.

use http::{Method, StatusCode, header};
use reqwest::{Body, RequestBuilder, Response};
use tokio::io::{AsyncReadExt, AsyncSeekExt};
use tokio_util::io::ReaderStream;

use super::{Upstream, UpstreamError};
use crate::{
    bundle::{Bundle, BundleError},
    manifest::{Manifest, ManifestError, Parts},
};

#[derive(Debug, thiserror::Error)]
pub enum PushError {
    #[error(transparent)]
    Upstream(#[from] UpstreamError),
    #[error(transparent)]
    Bundle(#[from] BundleError),
    #[error("manifest {digest}")]
    Manifest { digest: String, source: ManifestError },
    #[error("read the bundle")]
    Read(#[from] std::io::Error),
}

impl Upstream {
    /// Pushes an image of a bundle, and returns how many blobs the registry did not have.
    pub async fn push(
        &self,
        bundle: &Bundle,
        digest: &str,
        repository: &str,
        tag: &str,
    ) -> Result<usize, PushError> {
        let parse = |digest: &str| -> Result<(Vec<u8>, Manifest), PushError> {
            let bytes = bundle.small(digest)?;
            let manifest = Manifest::parse(&bytes)
                .map_err(|source| PushError::Manifest { digest: digest.to_owned(), source })?;
            Ok((bytes, manifest))
        };
        let (bytes, manifest) = parse(digest)?;
        let mut sent = 0;
        let mut images = Vec::new();
        match &manifest.parts {
            Parts::Image(_) => images.push((None, bytes.clone(), manifest.clone())),
            Parts::Index(all) => {
                for one in all.iter().filter(|one| bundle.place(&one.digest).is_some()) {
                    let (bytes, manifest) = parse(&one.digest)?;
                    images.push((Some(one.digest.clone()), bytes, manifest));
                }
            }
        }
        for (name, bytes, manifest) in images {
            let Parts::Image(parts) = &manifest.parts else { continue };
            for part in parts {
                sent += usize::from(self.push_blob(bundle, repository, &part.digest).await?);
            }
            // What an index names must be there before it.
            if let Some(name) = name {
                self.push_manifest(repository, &name, &manifest.media_type, bytes).await?;
            }
        }
        self.push_manifest(repository, tag, &manifest.media_type, bytes).await?;
        Ok(sent)
    }

    async fn push_blob(&self, bundle: &Bundle, repository: &str, digest: &str) -> Result<bool, PushError> {
        let what = format!("blob {digest} of {repository}");
        let url = self.url(repository, &format!("blobs/{digest}"))?;
        let known = self.ask(repository, || Ok(self.client.request(Method::HEAD, url.clone()))).await?;
        if known.status().is_success() || known.status().is_redirection() {
            return Ok(false);
        }
        let url = self.url(repository, "blobs/uploads/")?;
        let begun = self.ask(repository, || Ok(self.client.post(url.clone()))).await?;
        if begun.status() != StatusCode::ACCEPTED {
            return Err(self.refused(&begun, what).into());
        }
        let location = begun.headers().get(header::LOCATION).and_then(|value| value.to_str().ok());
        let mut to = location
            .and_then(|location| url.join(location).ok())
            .ok_or_else(|| self.unusable("does not say where to upload"))?;
        if to.scheme() != "https" && to.origin() != self.base.origin() {
            return Err(self.unusable("wants an upload without TLS").into());
        }
        to.query_pairs_mut().append_pair("digest", digest);
        let place = bundle
            .place(digest)
            .ok_or_else(|| self.unusable("is asked to have what is not in the bundle"))?;
        let mut file = tokio::fs::File::open(bundle.path()).await?;
        file.seek(std::io::SeekFrom::Start(place.offset)).await?;
        let mut request = self.client.put(to.clone()).header(header::CONTENT_LENGTH, place.size);
        request = request.header(header::CONTENT_TYPE, "application/octet-stream");
        if let Some(authorization) = self.known(repository).filter(|_| to.origin() == self.base.origin()) {
            request = request.header(header::AUTHORIZATION, authorization);
        }
        let body = Body::wrap_stream(ReaderStream::with_capacity(file.take(place.size), 1 << 17));
        let done = self.sent(request.body(body)).await?;
        if !done.status().is_success() {
            return Err(self.refused(&done, what).into());
        }
        Ok(true)
    }

    async fn push_manifest(
        &self,
        repository: &str,
        name: &str,
        kind: &str,
        bytes: Vec<u8>,
    ) -> Result<(), UpstreamError> {
        let url = self.url(repository, &format!("manifests/{name}"))?;
        let put = || {
            let request = self.client.put(url.clone()).header(header::CONTENT_TYPE, kind);
            Ok(request.body(bytes.clone()))
        };
        let done = self.ask(repository, put).await?;
        match done.status().is_success() {
            true => Ok(()),
            false => Err(self.refused(&done, format!("manifest {name} of {repository}"))),
        }
    }

    /// One request, with an answer to a challenge if there is one.
    async fn ask(
        &self,
        repository: &str,
        request: impl Fn() -> Result<RequestBuilder, UpstreamError>,
    ) -> Result<Response, UpstreamError> {
        let with = |request: RequestBuilder, authorization: Option<String>| match authorization {
            Some(authorization) => request.header(header::AUTHORIZATION, authorization),
            None => request,
        };
        let response = self.sent(with(request()?, self.known(repository))).await?;
        if response.status() != StatusCode::UNAUTHORIZED {
            return Ok(response);
        }
        let authorization = self.authorize(response.headers(), repository, "pull,push").await?;
        self.authorizations.lock().insert(repository.to_owned(), authorization.clone());
        self.sent(with(request()?, Some(authorization))).await
    }

    fn known(&self, repository: &str) -> Option<String> {
        self.authorizations.lock().get(repository).cloned()
    }

    async fn sent(&self, request: RequestBuilder) -> Result<Response, UpstreamError> {
        request
            .send()
            .await
            .map_err(|source| UpstreamError::Transport { host: self.host(), source: source.without_url() })
    }

    fn refused(&self, response: &Response, what: String) -> UpstreamError {
        UpstreamError::Refused { host: self.host(), code: response.status(), what }
    }
}

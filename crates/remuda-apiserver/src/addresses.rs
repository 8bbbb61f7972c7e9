//! Addresses of Services: which are taken, and free ones for those that ask.

use std::{collections::HashMap, net::Ipv4Addr, sync::Arc};

use parking_lot::Mutex;
use rand::RngExt;
use remuda_store::{Change, Record};
use serde_json::Value;

use crate::{
    follow::News,
    server::{Inner, StartError},
    status::{ApiError, ApiResult},
};

const PREFIX: &str = "/core/services/";
/// 10.96.0.0/12. The first addresses are left to those who choose their own.
const NETWORK: u32 = (10 << 24) | (96 << 16);
const HOSTS: std::ops::Range<u32> = 256..(1 << 20) - 1;

/// The addresses of all Services, by the key of the Service that has each.
#[derive(Default)]
pub(crate) struct Addresses {
    taken: Mutex<HashMap<String, Arc<str>>>,
}

pub(crate) async fn start(inner: &Arc<Inner>) -> Result<(), StartError> {
    let server = inner.clone();
    inner.follow(PREFIX, move |news| server.addresses.tell(news)).await
}

fn address(record: &Record) -> Option<String> {
    let service: Value = serde_json::from_slice(&record.value).ok()?;
    let address = service["spec"]["clusterIP"].as_str().filter(|address| !matches!(*address, "" | "None"))?;
    Some(address.to_owned())
}

impl Addresses {
    fn tell(&self, news: News<'_>) {
        let mut taken = self.taken.lock();
        match news {
            News::Reset(records) => {
                taken.clear();
                for record in records {
                    taken.extend(address(record).map(|address| (address, record.key.clone())));
                }
            }
            News::Changed(event) => {
                let before = event.previous.as_deref().and_then(address);
                if let Some(before) = before
                    && taken.get(&before).is_some_and(|holder| *holder == event.record.key)
                {
                    taken.remove(&before);
                }
                if event.change != Change::Deleted {
                    taken.extend(address(&event.record).map(|address| (address, event.record.key.clone())));
                }
            }
        }
    }

    /// A free address at random: two servers on one store rarely choose the same.
    pub(crate) fn choose(&self) -> ApiResult<String> {
        let taken = self.taken.lock();
        for _ in 0..1000 {
            let host = rand::rng().random_range(HOSTS);
            let address = Ipv4Addr::from(NETWORK | host).to_string();
            if !taken.contains_key(&address) {
                return Ok(address);
            }
        }
        Err(ApiError::internal("failed to allocate a serviceIP: range is full"))
    }

    /// Whether another Service has this address.
    pub(crate) fn is_taken(&self, address: &str, key: &str) -> bool {
        self.taken.lock().get(address).is_some_and(|holder| **holder != *key)
    }
}

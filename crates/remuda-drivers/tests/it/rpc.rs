//! The server's manners: heartbeats, closing, old names, and calls beside each other.

use std::{sync::Arc, time::Duration};

use remuda_drivers::{
    builtin::{Context, Registry},
    driver::{Config, Driver},
    fake::{Fake, Fault, digitalocean::DigitalOcean},
    flags::Flags,
    gob::encode::Body,
    log::Log,
    rpc::{
        client::{CallError, Client},
        server::{Ended, serve},
    },
};
use tokio::{net::TcpListener, task::JoinSet};

async fn served(driver: Arc<dyn Driver>, patience: Duration) -> (Client, JoinSet<Ended>) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let mut server = JoinSet::new();
    server.spawn(serve(driver, listener, patience));
    (Client::connect(address).await.unwrap(), server)
}

fn driver() -> Arc<dyn Driver> {
    Registry::standard().open("digitalocean", Context::new(Log::tracing())).unwrap()
}

#[tokio::test]
async fn a_silent_parent_is_given_up_and_a_closing_one_obeyed() {
    let (_client, mut server) = served(driver(), Duration::from_millis(100)).await;
    assert_eq!(server.join_next().await.unwrap().unwrap(), Ended::Abandoned);
    let (client, mut server) = served(driver(), Duration::from_secs(60)).await;
    client.call("RPCServerDriver.Heartbeat", Body::Empty).await.unwrap();
    let _ = client.call("RPCServerDriver.Close", Body::Empty).await;
    assert_eq!(server.join_next().await.unwrap().unwrap(), Ended::Closed);
}

#[tokio::test]
async fn old_names_work_and_unknown_ones_are_told_in_gos_words() {
    let (client, _server) = served(driver(), Duration::from_secs(60)).await;
    let version = client.call("RpcServerDriver.GetVersion", Body::Empty).await.unwrap();
    assert_eq!(version.into_int(), Ok(1));
    for (method, text) in [
        ("RPCServerDriver.Nope", "rpc: can't find method RPCServerDriver.Nope"),
        ("Other.GetVersion", "rpc: can't find service Other.GetVersion"),
        ("RPCServerDriver.GetIP", "IPv4 address is not set"),
        ("RPCServerDriver.SetConfigRaw", "argument of SetConfigRaw: expected []byte, got struct"),
    ] {
        match client.call(method, Body::Empty).await {
            Err(CallError::Remote(said)) => assert_eq!(said, text),
            other => panic!("{method}: {other:?}"),
        }
    }
}

#[tokio::test]
async fn heartbeats_are_answered_while_a_machine_is_being_created() {
    let fake = Fake::start(DigitalOcean::new("token-1")).await.unwrap();
    let store = tempfile::tempdir().unwrap();
    let mut context = Context::new(Log::tracing());
    context.digitalocean = fake.url();
    let driver = Registry::standard().open("digitalocean", context).unwrap();
    driver.load(Config::named("m1", store.path().to_str().unwrap())).await.unwrap();
    let mut values = Flags::defaults(&driver.flags().await.unwrap());
    values.set("digitalocean-access-token", "token-1");
    driver.configure(values).await.unwrap();
    fake.fault(0, Fault::Hang);
    let (client, _server) = served(driver, Duration::from_secs(60)).await;
    tokio::select! {
        outcome = client.call("RPCServerDriver.Create", Body::Empty) => panic!("{outcome:?}"),
        () = async {
            fake.hanging().await;
            client.call("RPCServerDriver.Heartbeat", Body::Empty).await.unwrap();
            // The record can be read meanwhile, too.
            let record = client.call("RPCServerDriver.GetConfigRaw", Body::Empty).await.unwrap();
            assert!(Config::from_json(&record.into_bytes().unwrap()).unwrap().str("RemudaID").len() == 32);
        } => {}
    }
}

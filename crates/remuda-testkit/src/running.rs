//! Controllers at work.

use std::{future::Future, sync::Arc};

use remuda_control::Ctx;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

pub struct Running {
    pub ctx: Arc<Ctx>,
    stop: CancellationToken,
    tasks: JoinSet<()>,
}

impl Running {
    /// `run` is handed what tells it to stop.
    pub fn start<F>(ctx: Arc<Ctx>, run: impl FnOnce(CancellationToken) -> F) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let stop = CancellationToken::new();
        let mut tasks = JoinSet::new();
        tasks.spawn(run(stop.clone()));
        Self { ctx, stop, tasks }
    }

    pub async fn stop(self) {
        self.stop.cancel();
        self.tasks.join_all().await;
        self.ctx.stop().await;
    }

    /// As when the process is killed: nothing under way is finished.
    pub async fn kill(mut self) {
        self.tasks.shutdown().await;
        self.stop.cancel();
        self.ctx.stop().await;
    }
}

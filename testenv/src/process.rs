//! Child processes that never outlive this one.
//!
//! Every child runs behind `setpriv --pdeathsig KILL`: when the thread that started it ends, the kernel kills the
//! child, whether this process returned, panicked or was killed itself. Hence this module works on Linux only. Each
//! child has a thread of its own, which starts the child and then waits for its end, so the thread cannot end before
//! the child while this process lives.
//!
//! Children are signalled through a pidfd, never by a number or a name that another process may have by now. They have
//! process groups of their own, so Ctrl-C in a terminal reaches only this process, which then ends them in order.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Output, Stdio};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open, pidfd_send_signal};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

/// Between the start of `setpriv` and its request for the signal, this process may already have died unnoticed. So the
/// child checks whose child it is.
const STILL_MY_PARENT: &str = r#"[ "$PPID" = "$0" ] && exec "$@""#;

/// How many lines of a log an error message shows.
const LOG_TAIL_LINES: usize = 15;

/// A running child, killed when this value is dropped.
#[derive(Debug)]
pub struct Process {
    name: String,
    id: u32,
    pidfd: OwnedFd,
    exit: watch::Receiver<Option<ExitStatus>>,
    waiter: Option<JoinHandle<()>>,
    log: PathBuf,
    log_start: u64,
}

impl Process {
    /// Starts `command`, with its output appended to the file `log` and without input. Of the command's settings the
    /// program, its arguments, variables and working directory count. A program that does not exist exits at once with
    /// status 127.
    pub fn start(command: &Command, log: &Path) -> Result<Self> {
        let name = Path::new(command.get_program())
            .file_name()
            .unwrap_or(command.get_program())
            .to_string_lossy()
            .into_owned();
        let output = OpenOptions::new()
            .create(true)
            .append(true)
            .open(log)
            .with_context(|| format!("cannot open the log {}", log.display()))?;
        let log_start = output.metadata()?.len();
        let mut guarded = guarded(command);
        guarded.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);

        let (started, start) = mpsc::sync_channel(1);
        let (ended, exit) = watch::channel(None);
        let waiter = thread::Builder::new().name(name.clone()).spawn(move || {
            match guarded.spawn() {
                Ok(mut child) => {
                    // Until the wait below no other process can get this id.
                    let pidfd = pidfd_open(Pid::from_child(&child), PidfdFlags::empty());
                    let _ = started.send(pidfd.map(|fd| (child.id(), fd)).map_err(Into::into));
                    if let Ok(status) = child.wait() {
                        ended.send_replace(Some(status));
                    }
                }
                Err(error) => {
                    let _ = started.send(Err(error));
                }
            }
        })?;
        let (id, pidfd) = start.recv()?.with_context(|| format!("cannot start {name} through setpriv"))?;
        Ok(Self { name, id, pidfd, exit, waiter: Some(waiter), log: log.to_owned(), log_start })
    }

    /// Returns the process id, for messages: signals are sent with the methods below.
    pub fn id(&self) -> u32 {
        self.id
    }

    pub fn exit_status(&self) -> Option<ExitStatus> {
        *self.exit.borrow()
    }

    pub async fn ended(&self) -> Result<ExitStatus> {
        let mut exit = self.exit.clone();
        let status = *exit.wait_for(Option::is_some).await?;
        status.with_context(|| format!("{} has no exit status", self.name))
    }

    pub async fn wait(&self, deadline: Duration) -> Result<ExitStatus> {
        timeout(deadline, self.ended()).await.with_context(|| format!("{} still runs after {deadline:?}", self.name))?
    }

    /// Sends SIGTERM and waits for the end of the process. Kills it if it still runs after `grace`.
    pub async fn terminate(&mut self, grace: Duration) -> Result<ExitStatus> {
        self.signal(Signal::TERM)?;
        let result = self.wait(grace).await;
        if result.is_err() {
            self.kill();
        }
        result
    }

    /// Kills the process (SIGKILL) and returns when it is gone. Does nothing if it is gone already.
    pub fn kill(&mut self) {
        // A process that the child itself has started, such as a compiler, is in its group.
        if let Some(group) = self.exit_status().is_none().then(|| Pid::from_raw(self.id.cast_signed())).flatten() {
            let _ = kill_process_group(group, Signal::KILL);
        }
        // An error means that the process has ended.
        let _ = pidfd_send_signal(&self.pidfd, Signal::KILL);
        if let Some(waiter) = self.waiter.take() {
            let _ = waiter.join();
        }
    }

    /// Stops the process (SIGSTOP): it keeps its connections and answers nothing.
    pub fn pause(&self) -> Result<()> {
        self.signal(Signal::STOP)?;
        // The threads stop one after the other, each when it next runs. On a busy machine one may still answer
        // meanwhile.
        while !self.is_halted()? {
            thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    pub fn resume(&self) -> Result<()> {
        self.signal(Signal::CONT)
    }

    pub fn log(&self) -> Result<String> {
        let mut bytes = Vec::new();
        let mut file = File::open(&self.log)?;
        file.seek(SeekFrom::Start(self.log_start))?;
        file.read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Waits until the output has a line that contains `text`, and returns that line.
    pub async fn wait_for_line(&self, text: &str, deadline: Duration) -> Result<String> {
        let end = Instant::now() + deadline;
        loop {
            let ended = self.exit_status();
            if let Some(line) = self.log()?.lines().find(|line| line.contains(text)) {
                return Ok(line.to_owned());
            }
            if ended.is_some() || Instant::now() > end {
                return Err(self.failure(&format!("did not say {text:?}")));
            }
            sleep(Duration::from_millis(20)).await;
        }
    }

    /// Returns an error about this process that holds the end of its log.
    pub fn failure(&self, what: &str) -> anyhow::Error {
        let name = &self.name;
        let state = match self.exit_status() {
            Some(status) => format!("it ended with {status}"),
            None => "it still runs".to_owned(),
        };
        let log = self.log().unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        let tail = lines[lines.len().saturating_sub(LOG_TAIL_LINES)..].join("\n");
        anyhow!("{name} {what}; {state}; the end of its log:\n{tail}")
    }

    /// Returns whether every thread has stopped (proc_pid_stat(5): the state follows the name, which is in brackets).
    fn is_halted(&self) -> Result<bool> {
        let threads = fs::read_dir(format!("/proc/{}/task", self.id));
        for thread in threads.with_context(|| format!("{} has ended", self.name))? {
            // A thread whose file cannot be read has ended meanwhile.
            let stat = fs::read_to_string(thread?.path().join("stat")).unwrap_or_default();
            if !stat.rsplit_once(") ").is_some_and(|(_, state)| state.starts_with('T')) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        pidfd_send_signal(&self.pidfd, signal).with_context(|| format!("cannot send {signal:?} to {}", self.name))
    }
}

/// Returns a field of the status of a process in /proc (proc_pid_status(5)), such as `VmHWM`.
pub fn status_field(process: u32, name: &str) -> Result<String> {
    let status = fs::read_to_string(format!("/proc/{process}/status"))?;
    let field = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    Ok(field.with_context(|| format!("no {name} of process {process}"))?.trim().to_owned())
}

/// Returns such a field that is a size, in KiB.
pub fn status_kib(process: u32, name: &str) -> Result<u64> {
    Ok(status_field(process, name)?.trim_end_matches(" kB").parse()?)
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Runs `command` to its end and returns what it wrote. Like a [`Process`], the command does not outlive this process;
/// unlike one, it must exit by itself.
pub async fn output(command: &Command) -> Result<Output> {
    let mut guarded = guarded(command);
    guarded.stdin(Stdio::null());
    // The blocking thread waits for the end, so it outlives the child.
    Ok(tokio::task::spawn_blocking(move || guarded.output()).await??)
}

pub async fn printed(command: &Command) -> Result<String> {
    let result = output(command).await?;
    let error = String::from_utf8_lossy(&result.stderr);
    ensure!(result.status.success(), "{command:?} fails: {}", error.trim());
    Ok(String::from_utf8_lossy(&result.stdout).into_owned())
}

/// Returns `command`, to be killed with the thread that starts it.
fn guarded(command: &Command) -> Command {
    let mut guarded = Command::new("setpriv");
    guarded
        .args(["--pdeathsig", "KILL", "--", "sh", "-c", STILL_MY_PARENT])
        .arg(std::process::id().to_string())
        .arg(command.get_program())
        .args(command.get_args())
        .process_group(0);
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => guarded.env(name, value),
            None => guarded.env_remove(name),
        };
    }
    if let Some(directory) = command.get_current_dir() {
        guarded.current_dir(directory);
    }
    guarded
}

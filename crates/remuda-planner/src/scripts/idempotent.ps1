# Runs an expression once per attempt of the agent: KEY VALUE-HASH COMMAND-HASH COMMAND DIRECTORY [ARGUMENT...]
param (
    [Parameter(Position=0)] [String] $Key,
    [Parameter(Position=1)] [String] $ValueHash,
    [Parameter(Position=2)] [String] $CommandHash,
    [Parameter(Position=3)] [String] $Command,
    [Parameter(Position=4)] [String] $Directory,
    [Parameter(Position=5, ValueFromRemainingArguments)] [String[]] $Rest
)
$ErrorActionPreference = 'Stop'
$state = "$Directory/idempotence/$Key/$CommandHash/$ValueHash"
$note = "$state/last-attempt"
$attempt = "$(Get-Content $note -ErrorAction Ignore)"
if ($attempt -ne '' -and $attempt -eq $env:CATTLE_AGENT_ATTEMPT_NUMBER) {
    Write-Host "attempt $attempt of $Key for $ValueHash has already been made"
    exit 0
}
New-Item -ItemType Directory -Force -Path $state | Out-Null
Set-Content -Path $note -Value $env:CATTLE_AGENT_ATTEMPT_NUMBER
Invoke-Expression "$Command '$($Rest -join ' ')'"

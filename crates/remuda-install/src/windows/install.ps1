<#
.SYNOPSIS
    Installs the node agent on this Windows machine and registers it with the server it came from.
.DESCRIPTION
    curl.exe -fL SERVER/wins-agent-install.ps1 -o install.ps1
    ./install.ps1 -Server SERVER -Token TOKEN -Worker [-CaChecksum HEX]
#>
[CmdletBinding()]
param (
    [String] $Server,
    [String] $Token,
    [String] $CaChecksum,
    [String] $NodeName,
    [String] $Address,
    [String] $InternalAddress,
    [String[]] $Label = @(),
    [String[]] $Taint = @(),
    [Switch] $Worker
)

$ErrorActionPreference = 'Stop'
$ProgressPreference = 'SilentlyContinue'

function Stop-Install([String] $Message) {
    Write-Error "[ERROR] $Message" -ErrorAction Continue
    exit 1
}

function Get-Value([String] $Given, [String] $Variable, [String] $Default = '') {
    if ($Given) { return $Given }
    $value = [Environment]::GetEnvironmentVariable($Variable)
    if ($value) { return $value }
    return $Default
}

function Test-Value([String] $Value) {
    return @('true', 't', 'yes', 'y', '1') -contains "$Value".ToLowerInvariant()
}

# curl.exe is part of Windows since 2019. Headers go through a file: a command line can be read by others.
# Returns the HTTP status, or 000 without an answer.
function Invoke-Request([String] $Url, [String] $File, [String[]] $Options = @(), [String[]] $Headers = @()) {
    $config = Join-Path $script:Work 'options'
    $lines = @($Headers | ForEach-Object { 'header = "' + $_.Replace('\', '\\').Replace('"', '\"') + '"' })
    [IO.File]::WriteAllLines($config, [String[]] $lines)
    $status = & curl.exe --config $config --silent --location --connect-timeout 30 --max-time 600 @Options --output $File --write-out '%{http_code}' $Url
    Remove-Item $config -Force
    return "$status"
}

function Invoke-Until([String] $What, [ScriptBlock] $Attempt) {
    for ($try = 1; $try -le 4500; $try++) {
        if (& $Attempt) { return }
        Write-Host "[WARN]  $What; trying again in 5 s ($try of 4500)"
        Start-Sleep -Seconds 5
    }
    Stop-Install "giving up: $What"
}

function Invoke-WinsInstaller {
    [CmdletBinding()]
    param (
        [String] $Server, [String] $Token, [String] $CaChecksum, [String] $NodeName, [String] $Address,
        [String] $InternalAddress, [String[]] $Label = @(), [String[]] $Taint = @(), [Switch] $Worker
    )

    $identity = [Security.Principal.WindowsPrincipal] [Security.Principal.WindowsIdentity]::GetCurrent()
    if (-not $identity.IsInRole([Security.Principal.WindowsBuiltInRole]::Administrator)) {
        Stop-Install 'installing the node agent needs an administrator'
    }
    $url = (Get-Value $Server 'CATTLE_SERVER').TrimEnd('/')
    $secret = Get-Value $Token 'CATTLE_TOKEN'
    $pin = (Get-Value $CaChecksum 'CATTLE_CA_CHECKSUM').ToLowerInvariant()
    $strict = Test-Value (Get-Value '' 'CATTLE_AGENT_STRICT_VERIFY' (Get-Value '' 'STRICT_VERIFY'))
    $var = Get-Value '' 'CATTLE_AGENT_VAR_DIR' 'C:/var/lib/rancher/agent'
    $config = Get-Value '' 'CATTLE_AGENT_CONFIG_DIR' 'C:/etc/rancher/wins'
    $bin = Join-Path (Get-Value '' 'CATTLE_AGENT_BIN_PREFIX' 'C:/usr/local') 'bin'
    if (-not $url.StartsWith('https://')) { Stop-Install 'no server is given: use -Server or CATTLE_SERVER' }
    if (-not $secret) { Stop-Install 'no token is given: use -Token or CATTLE_TOKEN' }
    if ($strict -and -not $pin) { Stop-Install 'strict verification needs -CaChecksum or CATTLE_CA_CHECKSUM' }
    foreach ($directory in @($var, $config, $bin)) { New-Item -ItemType Directory -Force -Path $directory | Out-Null }
    $script:Work = Join-Path $var "install-$PID"
    New-Item -ItemType Directory -Force -Path $script:Work | Out-Null

    try {
        $trust = @()
        $isTrusted = (-not $strict) -and ((Invoke-Request "$url/healthz" "$script:Work/healthz") -eq '200')
        if ($pin -and -not $isTrusted) {
            $authority = Join-Path $script:Work 'cacerts'
            Invoke-Until "cannot read $url/cacerts" { (Invoke-Request "$url/cacerts" $authority @('--insecure')) -eq '200' }
            $found = (Get-FileHash -Algorithm SHA256 -Path $authority).Hash.ToLowerInvariant()
            if ($found -ne $pin) { Stop-Install "the certificates of $url have the checksum $found, expected is $pin" }
            # The authority is private and has no list of revoked certificates to ask for.
            $trust = @('--cacert', $authority, '--ssl-no-revoke')
        }
        Invoke-Until "cannot reach $url" { (Invoke-Request "$url/healthz" "$script:Work/healthz" $trust) -eq '200' }

        $base = Get-Value '' 'CATTLE_AGENT_BINARY_BASE_URL' "$url/assets"
        $from = Get-Value '' 'CATTLE_AGENT_BINARY_URL' "$($base.TrimEnd('/'))/wins.exe"
        $own = if ($from.StartsWith("$url/")) { $trust } else { @() }
        $status = Invoke-Request $from "$script:Work/wins.exe" $own
        if ($status -ne '200') { Stop-Install "cannot download ${from}: HTTP $status" }
        if (Get-Service -Name 'rancher-wins' -ErrorAction Ignore) { Stop-Service -Name 'rancher-wins' }
        Move-Item -Force "$script:Work/wins.exe" (Join-Path $bin 'wins.exe')

        $idFile = Join-Path $config 'cattle-id'
        $id = Get-Value '' 'CATTLE_ID'
        if (-not $id -and (Test-Path $idFile)) { $id = (Get-Content -First 1 $idFile).Trim() }
        if (-not $id) {
            $bytes = New-Object byte[] 32
            [Security.Cryptography.RandomNumberGenerator]::Create().GetBytes($bytes)
            $id = (-join ($bytes | ForEach-Object { $_.ToString('x2') })).Substring(0, 63)
        }
        [IO.File]::WriteAllText($idFile, "$id`n")

        $headers = @("Authorization: Bearer $secret", "X-Cattle-Id: $id")
        if (-not (Test-Value (Get-Value '' 'CATTLE_ROLE_NONE'))) {
            $headers += @('X-Cattle-Role-Etcd: false', 'X-Cattle-Role-Control-Plane: false', 'X-Cattle-Role-Worker: true')
            $optional = @{
                'X-Cattle-Node-Name' = Get-Value $NodeName 'CATTLE_NODE_NAME'
                'X-Cattle-Address' = Get-Value $Address 'CATTLE_ADDRESS'
                'X-Cattle-Internal-Address' = Get-Value $InternalAddress 'CATTLE_INTERNAL_ADDRESS'
                'X-Cattle-Labels' = Get-Value ($Label -join ',') 'CATTLE_LABELS'
                'X-Cattle-Taints' = Get-Value ($Taint -join ',') 'CATTLE_TAINTS'
            }
            foreach ($name in $optional.Keys) { if ($optional[$name]) { $headers += "${name}: $($optional[$name])" } }
        }
        $info = Join-Path $script:Work 'connection'
        Invoke-Until "$url does not register this machine" {
            (Invoke-Request "$url/v3/connect/agent" $info $trust $headers) -eq '200'
        }
        Move-Item -Force $info (Join-Path $var 'rancher2_connection_info.json')

        $lines = @(
            'systemagent:'
            "  workDirectory: $var/work"
            "  appliedPlanDirectory: $var/applied"
            '  remoteEnabled: true'
            '  localEnabled: false'
            '  preserveWorkDirectory: false'
            "  connectionInfoFile: $var/rancher2_connection_info.json"
        )
        if ($env:CSI_PROXY_URL) {
            $lines += @('csi-proxy:', "  url: $env:CSI_PROXY_URL", "  version: $env:CSI_PROXY_VERSION", "  kubeletPath: $env:CSI_PROXY_KUBELET_PATH")
        }
        [IO.File]::WriteAllLines((Join-Path $config 'config'), [String[]] $lines)
        if (-not (Get-Service -Name 'rancher-wins' -ErrorAction Ignore)) {
            & (Join-Path $bin 'wins.exe') srv app run --register
        }
        Set-Service -Name 'rancher-wins' -StartupType Automatic
        Start-Service -Name 'rancher-wins'
        Write-Host '[INFO]  rancher-wins is started'
    } finally {
        Remove-Item -Recurse -Force $script:Work -ErrorAction Ignore
    }
}


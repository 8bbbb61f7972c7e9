# Leaves what RKE2 and the agent keep on this node to Administrators and SYSTEM alone.
$ErrorActionPreference = 'Stop'
$agent = 'c:\var\lib\rancher\agent'
$files = @(
    'c:\etc\rancher\wins\config',
    'c:\etc\rancher\node\password',
    "$agent\rancher2_connection_info.json",
    'c:\etc\rancher\rke2\config.yaml.d\50-rancher.yaml',
    'c:\usr\local\bin\rke2.exe'
)
$directories = @('c:\var\lib\rancher\capr', $agent, 'c:\var\lib\rancher\rke2')
$owners = @('BUILTIN\Administrators', 'NT AUTHORITY\SYSTEM')

foreach ($path in $files + $directories) {
    if (-not (Test-Path $path)) { continue }
    $acl = Get-Acl $path
    $strangers = $acl.Access | Where-Object { $owners -notcontains "$($_.IdentityReference)" }
    if ($null -eq $strangers) { continue }
    $inherit = if ($directories -contains $path) { 'ContainerInherit,ObjectInherit' } else { 'None' }
    $acl.SetAccessRuleProtection($true, $false)
    foreach ($rule in @($acl.Access)) { $acl.RemoveAccessRule($rule) | Out-Null }
    foreach ($owner in $owners) {
        $acl.AddAccessRule((New-Object Security.AccessControl.FileSystemAccessRule(
            $owner, 'FullControl', $inherit, 'None', 'Allow')))
    }
    $acl.SetOwner((New-Object Security.Principal.NTAccount($owners[0])))
    Set-Acl -Path $path -AclObject $acl
    Write-Host "restricted $path"
}

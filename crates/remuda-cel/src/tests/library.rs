//! Functions, by library.

use super::check;

#[test]
fn conversions() {
    check(
        r#"
        int('12') ⇒ 12
        int('-12') ⇒ -12
        int('1.5') ⇒ error: type conversion error from 'string' to 'int'
        int(1.9) ⇒ 1
        int(-1.9) ⇒ -1
        int(1e19) ⇒ error: integer overflow
        int(9223372036854775808u) ⇒ error: integer overflow
        int(timestamp('1970-01-01T00:01:00Z')) ⇒ 60
        int(duration('1s')) ⇒ 1000000000
        uint(3) ⇒ 3u
        uint(-3) ⇒ error: unsigned integer overflow
        uint('7') ⇒ 7u
        double(3) ⇒ 3.0
        double('1.5') ⇒ 1.5
        double('x') ⇒ error: type conversion error from 'string' to 'double'
        string(1) ⇒ "1"
        string(1u) ⇒ "1"
        string(1.5) ⇒ "1.5"
        string(1e6) ⇒ "1e+06"
        string(123456.0) ⇒ "123456"
        string(0.00001) ⇒ "1e-05"
        string(true) ⇒ "true"
        string(b'abc') ⇒ "abc"
        string(b'\xff') ⇒ error: invalid UTF-8 in bytes, cannot convert to string
        string(duration('90m')) ⇒ "5400s"
        string(timestamp('2024-01-01T01:00:00+01:00')) ⇒ "2024-01-01T00:00:00Z"
        bytes('é') == b'\xc3\xa9' ⇒ true
        bool('true') ⇒ true
        bool('yes') ⇒ error: type conversion error from 'string' to 'bool'
        type(1) ⇒ int
        type(1) == int ⇒ true
        type('a') == string ⇒ true
        type([]) == list ⇒ true
        type(null) == null_type ⇒ true
        type(self.when) == google.protobuf.Timestamp ⇒ true
        type(type(1)) == type ⇒ true
        "#,
    );
}

#[test]
fn times() {
    check(
        r#"
        timestamp('2024-02-29T12:30:45.678Z').getFullYear() ⇒ 2024
        timestamp('2024-02-29T12:30:45.678Z').getMonth() ⇒ 1
        timestamp('2024-02-29T12:30:45.678Z').getDate() ⇒ 29
        timestamp('2024-02-29T12:30:45.678Z').getDayOfMonth() ⇒ 28
        timestamp('2024-02-29T12:30:45.678Z').getDayOfYear() ⇒ 59
        timestamp('2024-02-29T12:30:45.678Z').getDayOfWeek() ⇒ 4
        timestamp('2024-02-29T12:30:45.678Z').getHours() ⇒ 12
        timestamp('2024-02-29T12:30:45.678Z').getMinutes() ⇒ 30
        timestamp('2024-02-29T12:30:45.678Z').getSeconds() ⇒ 45
        timestamp('2024-02-29T12:30:45.678Z').getMilliseconds() ⇒ 678
        timestamp('2024-02-29T12:30:00Z').getHours('-08:00') ⇒ 4
        timestamp('2024-02-29T12:30:00Z').getHours('02:00') ⇒ 14
        timestamp('2024-07-01T00:00:00Z').getHours('America/New_York') ⇒ 20
        timestamp('2024-01-01T00:00:00Z').getFullYear('America/New_York') ⇒ 2023
        timestamp('2024-01-01T00:00:00Z').getHours('Mars/Base') ⇒ error: unknown time zone Mars/Base
        duration('1h30m').getHours() ⇒ 1
        duration('1h30m').getMinutes() ⇒ 90
        duration('1h30m').getSeconds() ⇒ 5400
        duration('1.5s').getMilliseconds() ⇒ 1500
        timestamp('2024-01-01T00:00:00Z') + duration('24h') ⇒ 2024-01-02T00:00:00Z
        duration('1s') + timestamp('2024-01-01T00:00:00Z') ⇒ 2024-01-01T00:00:01Z
        timestamp('2024-01-02T00:00:00Z') - timestamp('2024-01-01T00:00:00Z') ⇒ 86400s
        timestamp('2024-01-02T00:00:00Z') - duration('1h') ⇒ 2024-01-01T23:00:00Z
        duration('1h') - duration('30m') ⇒ 1800s
        timestamp('9999-12-31T23:59:59Z') + duration('1s') ⇒ error: timestamp overflow
        timestamp('9999-12-31T00:00:00Z') - timestamp('0001-01-01T00:00:00Z') ⇒ error: duration overflow
        timestamp(0) ⇒ 1970-01-01T00:00:00Z
        timestamp(99999999999999) ⇒ error: timestamp overflow
        self.when > timestamp('2024-01-01T00:00:00Z') ⇒ true
        timestamp(self.name) ⇒ error: type conversion error from 'string' to 'google.protobuf.Timestamp'
        duration(self.name) ⇒ error: type conversion error from 'string' to 'google.protobuf.Duration'
        "#,
    );
}

#[test]
fn strings() {
    check(
        r#"
        size('héllo') ⇒ 5
        'hello'.contains('ell') ⇒ true
        'hello'.startsWith('he') ⇒ true
        'hello'.endsWith('lo') ⇒ true
        'tacocat'.charAt(3) ⇒ "o"
        'tacocat'.charAt(7) ⇒ ""
        'tacocat'.charAt(8) ⇒ error: index out of range: 8
        'hello mellow'.indexOf('ello') ⇒ 1
        'hello mellow'.indexOf('ello', 2) ⇒ 7
        'hello mellow'.indexOf('ello', 20) ⇒ -1
        'hello mellow'.indexOf('') ⇒ 0
        'hello mellow'.indexOf('', 20) ⇒ 12
        'hello mellow'.indexOf('jello') ⇒ -1
        'hello mellow'.indexOf('ello', -1) ⇒ error: index out of range: -1
        'hello mellow'.lastIndexOf('ello') ⇒ 7
        'hello mellow'.lastIndexOf('ello', 6) ⇒ 1
        'hello mellow'.lastIndexOf('ello', 7) ⇒ 7
        'hello mellow'.lastIndexOf('') ⇒ 12
        'hello mellow'.lastIndexOf('jello') ⇒ -1
        'ééé'.lastIndexOf('é') ⇒ 2
        'ééé'.lastIndexOf('é', 1) ⇒ 1
        'hello mellow'.lastIndexOf('ello', -1) ⇒ error: index out of range: -1
        ['hello', 'mellow'].join() ⇒ "hellomellow"
        ['hello', 'mellow'].join(' ') ⇒ "hello mellow"
        [].join() ⇒ ""
        'TacoCat'.lowerAscii() ⇒ "tacocat"
        'TacoCÆt Xii'.upperAscii() ⇒ "TACOCÆT XII"
        'hello hello'.replace('he', 'we') ⇒ "wello wello"
        'hello hello'.replace('he', 'we', 1) ⇒ "wello hello"
        'hello hello'.replace('he', 'we', 0) ⇒ "hello hello"
        'hello hello'.replace('he', 'we', -1) ⇒ "wello wello"
        'ab'.replace('', '-') ⇒ "-a-b-"
        'hello hello hello'.split(' ') ⇒ ["hello", "hello", "hello"]
        'hello hello hello'.split(' ', 0) ⇒ []
        'hello hello hello'.split(' ', 1) ⇒ ["hello hello hello"]
        'hello hello hello'.split(' ', 2) ⇒ ["hello", "hello hello"]
        'hello hello hello'.split(' ', -1) ⇒ ["hello", "hello", "hello"]
        'abé'.split('') ⇒ ["a", "b", "é"]
        ''.split(',') ⇒ [""]
        ''.split('') ⇒ []
        'tacocat'.substring(4) ⇒ "cat"
        'tacocat'.substring(0, 4) ⇒ "taco"
        'tacocat'.substring(7) ⇒ ""
        'tacocat'.substring(8) ⇒ error: index out of range: 8
        'tacocat'.substring(2, 1) ⇒ error: invalid substring range. start: 2, end: 1
        'tacocat'.substring(-1, 1) ⇒ error: index out of range: -1
        '  trim\n '.trim() ⇒ "trim"
        strings.quote('a "b" \\ \n') ⇒ "\"a \\\"b\\\" \\\\ \\n\""
        'a1b22'.matches('[0-9]+') ⇒ true
        'abc'.matches('^[0-9]+$') ⇒ false
        matches('abc', 'b') ⇒ true
        'abc'.matches(self.name + '(') ⇒ error: error parsing regexp: unclosed group
        'abc 123'.find('[0-9]+') ⇒ "123"
        'abc 123'.find('xyz') ⇒ ""
        '123 abc 456'.findAll('[0-9]+') ⇒ ["123", "456"]
        '123 abc 456'.findAll('[0-9]+', 1) ⇒ ["123"]
        '123 abc 456'.findAll('[0-9]+', 0) ⇒ []
        '123 abc 456'.findAll('xyz') ⇒ []
        '123 abc 456'.findAll(self.name + '|[0-9]+', x) ⇒ ["123", "456"]
        "#,
    );
}

#[test]
fn formatting() {
    check(
        r#"
        '%d %s %f %s %s'.format([1, 'abc', 1.0, duration('1m'), timestamp('2000-01-01T00:00:00.000Z')]) ⇒ "1 abc 1.000000 60s 2000-01-01T00:00:00Z"
        '%e'.format([3.14]) ⇒ "3.140000×10⁰⁰"
        '%e'.format([1234.5e-12]) ⇒ "1.234500×10⁻⁰⁹"
        '%o %o %o'.format([7, 8, 9]) ⇒ "7 10 11"
        '%b %b %b'.format([7, 8, 9]) ⇒ "111 1000 1001"
        '%x %X %x'.format([255, 255, 'hi']) ⇒ "ff FF 6869"
        '%x'.format([-255]) ⇒ "-ff"
        '%b'.format([true]) ⇒ "1"
        '%.2f'.format([2.71828]) ⇒ "2.72"
        '%.1f'.format([1234567.0]) ⇒ "1,234,567.0"
        '%s'.format([['a', 1.5, null]].map(l, dyn(l))) ⇒ compile: expected type 'string' but found 'double'
        '%s %s'.format([[1, 2], {'a': 'b'}]) ⇒ "[1, 2] {\"a\":\"b\"}"
        '100%%'.format([]) ⇒ "100%"
        '%s %s'.format(['a']) ⇒ error: index 1 out of range
        '%d'.format(['a']) ⇒ error: error during formatting: decimal clause can only be used on integers, was given string
        '%q'.format(['a']) ⇒ error: could not parse formatting clause: unrecognized formatting clause "q"
        '%'.format(['a']) ⇒ error: could not parse formatting clause: unexpected end of string
        "#,
    );
}

#[test]
fn lists() {
    check(
        r#"
        [1, 2, 2].isSorted() ⇒ true
        [2, 1].isSorted() ⇒ false
        ['a', 'b'].isSorted() ⇒ true
        [].isSorted() ⇒ true
        [1, 3].sum() ⇒ 4
        [1.0, 3.0].sum() ⇒ 4.0
        [1u, 2u].sum() ⇒ 3u
        [duration('1m'), duration('1s')].sum() ⇒ 61s
        [].sum() ⇒ 0
        [9223372036854775807, 1].sum() ⇒ error: integer overflow
        [3, 1].min() ⇒ 1
        [3, 1].max() ⇒ 3
        ['b', 'a'].min() ⇒ "a"
        [].min() ⇒ error: min called on empty list
        [1, 2, 2, 3].indexOf(2) ⇒ 1
        [1, 2, 2, 3].lastIndexOf(2) ⇒ 2
        [1.0].indexOf(1.1) ⇒ -1
        self.names.indexOf('c') ⇒ 2
        [1, 2].includes(2) ⇒ true
        'a'.includes('a') ⇒ true
        [1, 2, 3, 4].slice(1, 3) ⇒ [2, 3]
        [1, 2].slice(1, 5) ⇒ error: cannot slice(1, 5), list is length 2
        [1, 2].slice(-1, 1) ⇒ error: cannot slice(-1, 1), negative indexes not supported
        [1, 2].slice(2, 1) ⇒ error: cannot slice(2, 1), start index must be less than or equal to end index
        [[1, 2], [3]].flatten() ⇒ [1, 2, 3]
        [[[1]], [[2, 3]]].flatten() ⇒ [[1], [2, 3]]
        [[[1]], [[2, 3]]].flatten(2) ⇒ [1, 2, 3]
        [[1]].flatten(-1) ⇒ error: level must be non-negative
        [3, 1, 2].sort() ⇒ [1, 2, 3]
        ['b', 'a'].sort() ⇒ ["a", "b"]
        d.k.sort() ⇒ error: list elements must have the same type
        self.items.sortBy(i, -i.weight).map(i, i.name) ⇒ ["b", "a"]
        [1, 2, 2, 3, 1].distinct() ⇒ [1, 2, 3]
        [1, 2, 3].reverse() ⇒ [3, 2, 1]
        lists.range(3) ⇒ [0, 1, 2]
        lists.range(-1) ⇒ error: lists.range: size must be non-negative, got -1
        [1, 2].first() ⇒ some(1)
        [].first() ⇒ none
        [1, 2].last().value() ⇒ 2
        sets.contains([1, 2, 3], [2, 3]) ⇒ true
        sets.contains([1], [2]) ⇒ false
        sets.equivalent([1, 2, 2], [2, 1]) ⇒ true
        sets.intersects([1, 2], [2, 3]) ⇒ true
        sets.intersects([1], []) ⇒ false
        "#,
    );
}

#[test]
fn libraries_kubernetes_does_not_have_are_not_here_either() {
    check(
        r#"
        math.greatest(1, 2) ⇒ compile: undeclared reference to 'math' (in container '')
        math.abs(-3) ⇒ compile: undeclared reference to 'math' (in container '')
        base64.encode(b'hello') ⇒ compile: undeclared reference to 'base64' (in container '')
        cel.bind(y, 1, y) ⇒ compile: undeclared reference to 'cel' (in container '')
        'gums'.reverse() ⇒ compile: found no matching overload for 'reverse' applied to 'string.()'
        [1, 2].reverse() ⇒ [2, 1]
        "#,
    );
}

#[test]
fn urls() {
    check(
        r#"
        isURL('https://user:pass@example.com:80/path?query=val#fragment') ⇒ true
        isURL('/absolute-path') ⇒ true
        isURL('https://a:b:c/') ⇒ false
        isURL('../relative-path') ⇒ false
        isURL('') ⇒ false
        url('https://example.com/').getScheme() ⇒ "https"
        url('/path').getScheme() ⇒ ""
        url('https://example.com:80/').getHost() ⇒ "example.com:80"
        url('https://[::1]:80/').getHost() ⇒ "[::1]:80"
        url('https://[::1]/').getHost() ⇒ "[::1]"
        url('/path').getHost() ⇒ ""
        url('https://example.com:80/').getHostname() ⇒ "example.com"
        url('https://[::1]:80/').getHostname() ⇒ "::1"
        url('https://example.com:80/').getPort() ⇒ "80"
        url('https://example.com/').getPort() ⇒ ""
        url('https://example.com/path with spaces/').getEscapedPath() ⇒ "/path%20with%20spaces/"
        url('https://example.com').getEscapedPath() ⇒ ""
        url('https://example.com/path?k1=a&k2=b&k2=c').getQuery() ⇒ {"k1": ["a"], "k2": ["b", "c"]}
        url('https://example.com/path?key with spaces=value with spaces').getQuery() ⇒ {"key with spaces": ["value with spaces"]}
        url('https://example.com/path?').getQuery() ⇒ {}
        url('https://a/') == url('https://a/') ⇒ true
        url('a') ⇒ error: URL parse error during conversion from string: parse "a": invalid URI for request
        "#,
    );
}

#[test]
fn addresses() {
    check(
        r#"
        ip('127.0.0.1') ⇒ 127.0.0.1
        isIP('::1') ⇒ true
        isIP('127.0.0.256') ⇒ false
        isIP('127.0.0.01') ⇒ false
        isIP('::ffff:1.2.3.4') ⇒ false
        isIP('fe80::1%eth0') ⇒ false
        ip('::ffff:1.2.3.4') ⇒ error: IPv4-mapped IPv6 address "::ffff:1.2.3.4" is not allowed
        ip('fe80::1%en0') ⇒ error: IP address "fe80::1%en0" with zone value is not allowed
        ip.isCanonical('2001:db8::abcd') ⇒ true
        ip.isCanonical('2001:DB8::ABCD') ⇒ false
        ip('127.0.0.1').family() ⇒ 4
        ip('::1').family() ⇒ 6
        ip('0.0.0.0').isUnspecified() ⇒ true
        ip('127.0.0.1').isLoopback() ⇒ true
        ip('224.0.0.1').isLinkLocalMulticast() ⇒ true
        ip('224.0.1.1').isLinkLocalMulticast() ⇒ false
        ip('ff02::1').isLinkLocalMulticast() ⇒ true
        ip('169.254.169.254').isLinkLocalUnicast() ⇒ true
        ip('fe80::1').isLinkLocalUnicast() ⇒ true
        ip('fd80::1').isLinkLocalUnicast() ⇒ false
        ip('192.168.0.1').isGlobalUnicast() ⇒ true
        ip('255.255.255.255').isGlobalUnicast() ⇒ false
        ip('ff00::1').isGlobalUnicast() ⇒ false
        ip('127.0.0.1') == ip('127.0.0.1') ⇒ true
        string(ip('::1')) ⇒ "::1"
        isCIDR('192.168.0.0/16') ⇒ true
        isCIDR('192.168.0.0/33') ⇒ false
        isCIDR('::1/129') ⇒ false
        isCIDR('10.0.0.0/08') ⇒ false
        cidr('192.168.0.0/24').containsIP(ip('192.168.0.1')) ⇒ true
        cidr('192.168.0.0/24').containsIP('192.168.1.1') ⇒ false
        cidr('192.168.0.0/16').containsCIDR(cidr('192.168.10.0/24')) ⇒ true
        cidr('192.168.0.0/16').containsCIDR('192.0.0.0/8') ⇒ false
        cidr('192.168.0.1/24').ip() ⇒ 192.168.0.1
        cidr('192.168.0.1/24').masked() ⇒ 192.168.0.0/24
        cidr('::1/128').prefixLength() ⇒ 128
        cidr('10.1.2.3/0').masked() ⇒ 0.0.0.0/0
        string(cidr('10.0.0.0/8')) ⇒ "10.0.0.0/8"
        "#,
    );
}

#[test]
fn quantities() {
    check(
        r#"
        isQuantity('1.5G') ⇒ true
        isQuantity('200k') ⇒ true
        isQuantity('200K') ⇒ false
        isQuantity('1,3G') ⇒ false
        isQuantity('Mi') ⇒ false
        isQuantity('') ⇒ false
        isQuantity('1e3') ⇒ true
        isQuantity('-100m') ⇒ true
        quantity('Three') ⇒ error: quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'
        quantity('50k').asInteger() ⇒ 50000
        quantity('50k').isInteger() ⇒ true
        quantity('1Gi').asInteger() ⇒ 1073741824
        quantity('1.5').isInteger() ⇒ false
        quantity('1500m').isInteger() ⇒ false
        quantity('50000000G').isInteger() ⇒ true
        quantity('9999999999999999999999999999999999999G').isInteger() ⇒ false
        quantity('9999999999999999999999999999999999999G').asInteger() ⇒ error: cannot convert value to integer
        quantity('50k').add(quantity('20k')) == quantity('70k') ⇒ true
        quantity('50k').add(20) == quantity('50020') ⇒ true
        quantity('50k').sub(quantity('20k')) == quantity('30k') ⇒ true
        quantity('50k').sub(20000).asApproximateFloat() ⇒ 30000.0
        quantity('50k').add(20).sub(quantity('100k')).sub(-50000) == quantity('20') ⇒ true
        quantity('200M').compareTo(quantity('0.2G')) ⇒ 0
        quantity('50M').compareTo(quantity('50Mi')) ⇒ -1
        quantity('50Mi').compareTo(quantity('50M')) ⇒ 1
        quantity('150Mi').isGreaterThan(quantity('100Mi')) ⇒ true
        quantity('100M').isLessThan(quantity('50M')) ⇒ false
        quantity('1e900').isGreaterThan(quantity('1n')) ⇒ true
        quantity('-1e900').isLessThan(quantity('1n')) ⇒ true
        quantity('0.5Ki') == quantity('512') ⇒ true
        quantity('100m') == quantity('0.1') ⇒ true
        sign(quantity('-1')) ⇒ -1
        quantity('0').sign() ⇒ 0
        "#,
    );
}

#[test]
fn versions() {
    check(
        r#"
        isSemver('1.0.0') ⇒ true
        isSemver('0.1.0-alpha.1') ⇒ true
        isSemver('v1.0') ⇒ false
        isSemver('v1.0', true) ⇒ true
        isSemver('01.01.01') ⇒ false
        isSemver('01.01.01', true) ⇒ true
        isSemver('hello') ⇒ false
        semver('200K') ⇒ error: No Major.Minor.Patch elements found
        semver('1.2.3').major() ⇒ 1
        semver('1.2.3').minor() ⇒ 2
        semver('1.2.3').patch() ⇒ 3
        semver('v1.2', true).patch() ⇒ 0
        semver('1.2-rc', true) ⇒ error: short version cannot contain PreRelease/Build meta data
        semver('1.2.3').compareTo(semver('1.2.3')) ⇒ 0
        semver('1.2.3').compareTo(semver('2.0.0')) ⇒ -1
        semver('1.2.3').compareTo(semver('0.1.2')) ⇒ 1
        semver('1.0.0-alpha').isLessThan(semver('1.0.0')) ⇒ true
        semver('1.0.0-alpha.10').isGreaterThan(semver('1.0.0-alpha.9')) ⇒ true
        semver('1.0.0-alpha.1').isLessThan(semver('1.0.0-alpha.beta')) ⇒ true
        semver('1.0.0+a') == semver('1.0.0+b') ⇒ true
        "#,
    );
}

#[test]
fn named_formats() {
    check(
        r#"
        format.dns1123Label().validate('my-label') ⇒ none
        format.dns1123Label().validate('a.b') ⇒ some(["must not contain dots"])
        format.dns1123Label().validate('contains a space').value()[0].startsWith('a lowercase RFC 1123 label must consist') ⇒ true
        format.dns1123Subdomain().validate('apiextensions.k8s.io') ⇒ none
        format.dns1123Subdomain().validate('A').hasValue() ⇒ true
        format.dns1035Label().validate('my-label') ⇒ none
        format.dns1035Label().validate('1abc').hasValue() ⇒ true
        format.qualifiedName().validate('apiextensions.k8s.io/v1beta1') ⇒ none
        format.qualifiedName().validate('a/b/c').hasValue() ⇒ true
        format.qualifiedName().validate('/c').value()[0] ⇒ "prefix part must be non-empty"
        format.dns1123LabelPrefix().validate('my-label-prefix-') ⇒ none
        format.labelValue().validate('') ⇒ none
        format.labelValue().validate('-a').hasValue() ⇒ true
        format.uri().validate('http://example.com') ⇒ none
        format.uri().validate('x').hasValue() ⇒ true
        format.uuid().validate('123e4567-e89b-12d3-a456-426614174000') ⇒ none
        format.uuid().validate('x') ⇒ some(["does not match the UUID format"])
        format.byte().validate('aGVsbG8=') ⇒ none
        format.byte().validate('aGVsbG8') ⇒ some(["invalid base64"])
        format.date().validate('2021-01-01') ⇒ none
        format.date().validate('2021-13-01') ⇒ some(["invalid date"])
        format.datetime().validate('2021-01-01T00:00:00Z') ⇒ none
        format.datetime().validate('2021') ⇒ some(["invalid datetime"])
        format.named('uri').hasValue() ⇒ true
        format.named('nope') ⇒ none
        format.uri() == format.uri() ⇒ true
        "#,
    );
}

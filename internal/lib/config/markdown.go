package config

import (
	"fmt"
	"log/slog"
	"net/netip"
	"reflect"
	"strings"
	"time"
)

// Markdown returns the text of docs/configuration.md, which explains the sources of settings and lists every setting in
// a table.
func Markdown() string {
	var b strings.Builder
	b.WriteString(`# Configuration

Every setting has a default, so Postrider starts without any configuration. Postrider reads settings from these sources;
later sources override earlier ones:

1. the defaults in the table below,
2. a TOML file: the one that ` + "`--config`" + ` or ` + "`POSTRIDER_CONFIG`" + ` names, or else ` +
		"`postrider.toml`" + ` in the working
   directory, or else ` + "`" + SystemFile + "`" + ` (not for the command ` + "`dev`" + `),
3. environment variables: ` + "`POSTRIDER_`" + ` and the name in capitals, such as ` + "`POSTRIDER_HTTP_LISTEN=:80`" +
		`; an empty
   variable counts as not set. With ` + "`" + SystemFile + "`" + `, the variables in ` + "`" + SystemVariables + "`" + `
   are read too; those of the process override them,
4. flags: the name with hyphens, such as ` + "`--http-listen=:80`" + `.

Durations are written as ` + "`30s`, `5m`, `1h30m`" + `, and sizes as ` + "`512KB`, `40MB`" +
		` (1 KB is 1,024 bytes). Lists are TOML
arrays; in a variable or flag, commas separate the items. Postrider reports all invalid settings at once and does not
start until all are valid. Tables such as ` + "`[[relays]]`" + ` come after all other settings of the file. TOML
counts each line after the name of a table as part of that table. Unknown names in the file, and unknown variables that
begin with ` + "`POSTRIDER_`" + `, are invalid too. ` + "`postrider config check`" + ` reports all problems, including
those in certificates and other files that settings name. The command also lists the features that are off.
` + "`postrider config show`" + ` prints each value with its source. The command hides secrets, the user names of relays,
and the parameters of URLs. The command ` + "`dev`" +
		` has other defaults: ` + "`data_dir`" +
		` is
` + "`data/dev`, `http_listen` is `127.0.0.1:3000`, and `rate_limit` is 1000." + `

A running node reads its settings again when it gets the signal SIGHUP
(` + "`systemctl reload postrider`" + `). Settings that are live in the table then take effect. The log lists
the changed settings that need a restart. If a setting is invalid, the node keeps all its settings and logs the
problems.

| Setting | Type | Default | Live | Meaning |
| --- | --- | --- | --- | --- |
`)
	for _, s := range settings(&Config{}) {
		def := "`" + s.def + "`"
		if s.def == "" {
			def = "empty"
		}
		live := ""
		if s.live {
			live = "yes"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", s.key, kind(s.value), def, live, escape(s.doc))
	}
	b.WriteString(`
## Relays

Each table is a relay. Postrider tries the relays in the order of the file
([sending through a relay](operating/relays.md)):

` + "```toml" + `
[[relays]]
name = "main"
address = "smtp.example.com:587"
username = "postrider"
password_file = "/etc/postrider/relay-password"

[[relays]]
name = "corp"
address = "mail.corp.example:25"
domains = ["corp.example", "*.corp.example"]
` + "```" + `

`)
	writeKeys(&b, Relay{})
	b.WriteString(`
## Destinations

The file that ` + "`destinations_file`" + ` names has tables with any names
([rules for destinations](operating/destinations.md)). Each table has some of these keys:

`)
	writeKeys(&b, Destination{})
	b.WriteString(`
## Regions

A domain belongs to a region, and its DNS records point at the hosts of that region. An installation in a
single location needs no table. Several regions are configured like this:

` + "```toml" + `
[regions.us-east-1]
bounce_host = "bounce.us.example.com"
inbound_host = "inbound.us.example.com"
spf_include = "_spf.us.example.com"
tracking_host = "links.us.example.com"

[regions.eu-west-1]
bounce_host = "bounce.eu.example.com"
` + "```" + `
`)
	return b.String()
}

// writeKeys writes a table of the keys of a struct.
func writeKeys(b *strings.Builder, of any) {
	b.WriteString("| Key | Type | Meaning |\n| --- | --- | --- |\n")
	v := reflect.New(reflect.TypeOf(of)).Elem()
	for i := range v.NumField() {
		tag := v.Type().Field(i).Tag
		if key := tag.Get("toml"); key != "" {
			fmt.Fprintf(b, "| `%s` | %s | %s |\n", key, kind(v.Field(i)), escape(tag.Get("doc")))
		}
	}
}

func escape(doc string) string { return strings.ReplaceAll(doc, "|", `\|`) }

// kind returns a setting's type as the manual names it.
func kind(v reflect.Value) string {
	switch v.Interface().(type) {
	case time.Duration:
		return "duration"
	case []time.Duration:
		return "durations"
	case Size:
		return "size"
	case []string, []Secret, []netip.Prefix:
		return "list"
	case Rate:
		return "rate"
	case slog.Level:
		return "text"
	}
	switch v.Kind() {
	case reflect.Int:
		return "whole number"
	case reflect.Float64:
		return "number"
	case reflect.Bool:
		return "true or false"
	case reflect.Map, reflect.Slice:
		return "tables"
	}
	return "text"
}

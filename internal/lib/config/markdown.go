package config

import (
	"fmt"
	"log/slog"
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
2. a TOML file: ` + "`postrider.toml`" + ` in the working directory if it exists, or the file that ` + "`--config`" +
		` or
   ` + "`POSTRIDER_CONFIG`" + ` names,
3. environment variables: ` + "`POSTRIDER_`" + ` and the name in capitals, such as ` + "`POSTRIDER_HTTP_LISTEN=:80`" +
		`; an empty
   variable counts as not set,
4. flags: the name with hyphens, such as ` + "`--http-listen=:80`" + `.

Durations are written as ` + "`30s`, `5m`, `1h30m`" + `, and sizes as ` + "`512KB`, `40MB`" +
		` (1 KB is 1,024 bytes). Lists are TOML
arrays; in a variable or flag, commas separate the items. Postrider reports all invalid settings at once and does not
start until all are valid. The command ` + "`dev`" + ` has other defaults: ` + "`data_dir`" +
		` is
` + "`data/dev`, `http_listen` is `127.0.0.1:3000`, and `rate_limit` is 1000." + `

| Setting | Type | Default | Meaning |
| --- | --- | --- | --- |
`)
	for _, s := range settings(&Config{}) {
		def := "`" + s.def + "`"
		if s.def == "" {
			def = "empty"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", s.key, kind(s.value), def, strings.ReplaceAll(s.doc, "|", `\|`))
	}
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

// kind returns a setting's type as the manual names it.
func kind(v reflect.Value) string {
	switch v.Interface().(type) {
	case time.Duration:
		return "duration"
	case []time.Duration:
		return "durations"
	case Size:
		return "size"
	case []string:
		return "list"
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
	case reflect.Map:
		return "tables"
	}
	return "text"
}

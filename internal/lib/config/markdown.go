package config

import (
	"fmt"
	"log/slog"
	"reflect"
	"strings"
	"time"
)

// Markdown returns the text of docs/configuration.md: where settings come from, and a table of all of them.
func Markdown() string {
	var b strings.Builder
	b.WriteString(`# Configuration

Every setting has a default, so Postrider starts without any. Each source stands over the one before it:

1. the defaults in the table below,
2. a TOML file: ` + "`postrider.toml`" + ` in the working directory if it exists, or the one that ` + "`--config`" +
		` or
   ` + "`POSTRIDER_CONFIG`" + ` names,
3. environment variables: ` + "`POSTRIDER_`" + ` and the name in capitals, as ` + "`POSTRIDER_HTTP_LISTEN=:80`" +
		`; an empty one
   counts as not set,
4. flags: the name with hyphens, as ` + "`--http-listen=:80`" + `.

Durations are written as ` + "`30s`, `5m`, `1h30m`" + `; sizes as ` + "`512KB`, `40MB`" +
		` (1 KB is 1,024 bytes); lists as TOML arrays, or
with commas in a variable or flag. All problems of the settings are reported at once, and nothing starts until there
are none. The command dev has defaults of its own for a few of them.

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

A domain belongs to a region, and its DNS records point at the hosts of that region. A node with a single place needs no
table; several are written so:

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

// kind is the type of a setting as the manual names it.
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

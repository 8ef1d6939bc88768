package config

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/postrider/postrider/internal/lib/spelling"
)

const relaysKey = "relays"

// relaysMax is the maximum number of relays.
const relaysMax = 50

// ShortRelay is the name of the relay that relay_addr and the other settings without a table describe.
const ShortRelay = "relay"

// Relay is a mail server of the operator that forwards mail.
type Relay struct {
	Name         string   `toml:"name" doc:"Name of the relay in attempts, logs and the file of destinations: lower-case letters, digits and hyphens."`
	Address      string   `toml:"address" doc:"Address of the relay, as host:port."`
	Username     string   `toml:"username" doc:"User name at the relay. Empty: no authentication."`
	Password     Secret   `toml:"password" doc:"Password at the relay. The variable POSTRIDER_RELAY_NAME_PASSWORD, with the relay's name in capitals and underscores for hyphens, overrides it."`
	PasswordFile string   `toml:"password_file" doc:"File with the password, instead of password."`
	TLS          string   `toml:"tls" doc:"TLS towards the relay, as in relay_tls. Empty: opportunistic."`
	Domains      []string `toml:"domains" doc:"Recipients' domains whose mail goes to this relay, such as corp.example, or *.corp.example for all its subdomains. Empty: all."`
	From         []string `toml:"from" doc:"Senders' domains whose mail goes to this relay, written in the same way. A relay with domains and from takes only mail that matches both. Empty: all."`
}

// HasRules reports whether the relay takes only some mail.
func (r Relay) HasRules() bool { return len(r.Domains)+len(r.From) > 0 }

// AllRelays returns the relays in the order in which they are tried: the one of relay_addr, and then those of the
// tables.
func (c Config) AllRelays() []Relay {
	if c.RelayAddr == "" {
		return c.Relays
	}
	short := Relay{Name: ShortRelay, Address: c.RelayAddr, Username: c.RelayUsername, Password: c.RelayPassword,
		TLS: c.RelayTLS}
	return append([]Relay{short}, c.Relays...)
}

// DefaultRelay returns the first relay that takes all mail, or false if there is none.
func (c Config) DefaultRelay() (Relay, bool) {
	for _, r := range c.AllRelays() {
		if !r.HasRules() {
			return r, true
		}
	}
	return Relay{}, false
}

// SecretFile is a file with a secret that a setting names.
type SecretFile struct{ Setting, Path string }

// SecretFiles returns the files with secrets that settings name.
func (c Config) SecretFiles() (all []SecretFile) {
	if c.TLSKeyFile != "" {
		all = append(all, SecretFile{"tls_key_file", c.TLSKeyFile})
	}
	for _, r := range c.Relays {
		if r.PasswordFile != "" {
			all = append(all, SecretFile{relaysKey + "." + r.Name + ".password_file", r.PasswordFile})
		}
	}
	return all
}

// relays reads the tables [[relays]] of the configuration file. Load checks the relays together with the other
// settings.
func (l *loader) relays(value any, file string, data []byte) {
	tables, ok := value.([]map[string]any)
	if !ok {
		l.problemAt(relaysKey, file, "must be tables such as [[relays]]")
		return
	}
	lines := linesOf(data, relaysKey, len(tables))
	l.config.Relays = make([]Relay, len(tables))
	for i, table := range tables {
		name, line := relayTable(i), 0
		if lines != nil {
			line = lines[i]
		}
		l.setPlace(name, placeAt(file, line))
		l.setPlacesOfKeys(name, file, data, line)
		r := &l.config.Relays[i]
		l.table(reflect.ValueOf(r).Elem(), table, func(key, format string, args ...any) {
			l.problemAt(name+"."+key, l.placeIn(name, key), format, args...)
		})
		r.TLS = cmp.Or(r.TLS, "opportunistic")
	}
}

// relayTable names the table of the relay with an index, from 0.
func relayTable(i int) string { return fmt.Sprintf("%s[%d]", relaysKey, i+1) }

// table reads the keys of a TOML table into a struct, by the tags of its fields, and reports problems of keys.
func (l *loader) table(into reflect.Value, table map[string]any, problem func(key, format string, args ...any)) {
	var known []string
	for f := range into.Type().Fields() {
		known = append(known, f.Tag.Get("toml"))
	}
	for _, key := range slices.Sorted(maps.Keys(table)) {
		i := slices.Index(known, key)
		if i < 0 || key == "" {
			keys := slices.DeleteFunc(slices.Clone(known), func(k string) bool { return k == "" })
			problem(key, "%s", l.unknownKey(key, keys))
			continue
		}
		for _, err := range assign(into.Field(i), table[key]) {
			problem(key, "%w", err)
		}
	}
}

// passwords reads the passwords of relays from variables and files.
func (l *loader) passwords(readFile func(string) ([]byte, error)) {
	for i := range l.config.Relays {
		r := &l.config.Relays[i]
		if r.PasswordFile != "" {
			l.passwordFile(i, readFile)
		}
		if text := l.variables[RelayVariable(r.Name)].text; text != "" {
			r.Password = Secret(text)
		}
	}
}

// passwordFile sets the password of relay number i from the relay's password file.
func (l *loader) passwordFile(i int, readFile func(string) ([]byte, error)) {
	r := &l.config.Relays[i]
	if r.Password != "" {
		l.wrongRelay(i, "password_file", "password is set too; keep only one of them")
		return
	}
	data, err := readFile(r.PasswordFile)
	r.Password = Secret(strings.TrimSpace(string(data)))
	switch {
	case errors.Is(err, fs.ErrPermission):
		l.wrongRelay(i, "password_file", "%w; %s", err, forGroup)
	case err != nil:
		l.wrongRelay(i, "password_file", "%w", err)
	case r.Password == "":
		l.wrongRelay(i, "password_file", "%s is empty; write the password into it", r.PasswordFile)
	}
}

// forGroup is the advice about a file that the user of the node may not read.
const forGroup = "let the group of the node's user read the file, as with `chgrp postrider FILE` and `chmod 640 " +
	"FILE`, and run this command as that user"

// RelayVariable returns the name of the variable with the password of a relay.
func RelayVariable(name string) string {
	return "POSTRIDER_RELAY_" + strings.ToUpper(strings.ReplaceAll(name, "-", "_")) + "_PASSWORD"
}

// relayName matches the name of a relay.
var relayName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?$`)

// wrongRelay adds a problem of a key of the relay with an index.
func (l *loader) wrongRelay(i int, key, format string, args ...any) {
	table := relayTable(i)
	name := table
	if r := l.config.Relays[i].Name; relayName.MatchString(r) {
		name = relaysKey + "." + r
	}
	l.problemAt(name+"."+key, l.placeIn(table, key), format, args...)
}

// checkRelays checks the relays of the tables.
func (l *loader) checkRelays() {
	c := &l.config
	if len(c.Relays) > relaysMax {
		l.problem("relays: there are %d, at most %d are allowed", len(c.Relays), relaysMax)
	}
	names := map[string]bool{ShortRelay: c.RelayAddr != ""}
	for i := range c.Relays {
		name := c.Relays[i].Name
		if !relayName.MatchString(name) {
			l.wrongRelay(i, "name", "%q is not a name; write lower-case letters, digits and hyphens", name)
		} else if names[name] {
			l.wrongRelay(i, "name", "another relay has the same name")
		}
		names[name] = true
		l.checkRelayOf(i)
	}
	if _, ok := c.DefaultRelay(); !ok && c.Transport == "relay" {
		l.wrong("relay_addr", "is empty; transport relay needs the relay's host:port here, or a table [[relays]] without "+
			"domains and from, for mail that matches no rule")
	}
}

// checkRelayOf checks the values of the relay with an index, except for its name.
func (l *loader) checkRelayOf(i int) {
	r := &l.config.Relays[i]
	if !hostPort(r.Address, false) {
		l.wrongRelay(i, "address", "%q is not host:port; write smtp.example.com:587", r.Address)
	}
	if (r.Username == "") != (r.Password == "" && r.PasswordFile == "") {
		l.wrongRelay(i, "username", "and the password belong together; set both or neither (password, password_file or %s)",
			RelayVariable(r.Name))
	}
	if !slices.Contains(choices["relay_tls"], r.TLS) {
		l.wrongRelay(i, "tls", "%q is not known; use one of %s", r.TLS, strings.Join(choices["relay_tls"], ", "))
	}
	host, _, _ := net.SplitHostPort(r.Address)
	if r.Password != "" && r.TLS == "none" && !onThisMachine(host) {
		l.wrongRelay(i, "tls", "none would send the password in clear to %s; use required or implicit", host)
	}
	for _, list := range []struct {
		key string
		all []string
	}{{"domains", r.Domains}, {"from", r.From}} {
		for j, name := range list.all {
			list.all[j] = hostName(name)
			if !isPattern(list.all[j]) {
				l.wrongRelay(i, list.key, "%q is not a domain; write corp.example, or *.corp.example for its subdomains", name)
			}
		}
	}
}

// isPattern reports whether a name is a domain, or *. and a domain.
func isPattern(name string) bool {
	name = strings.TrimPrefix(name, "*.")
	return len(name) <= 253 && domain.MatchString(name)
}

// relayValues returns the relays as values for people, with the places of their tables.
func relayValues(c Config, places map[string]string) (all []Value) {
	for i, r := range c.Relays {
		v := reflect.ValueOf(r)
		var parts []string
		for i := range v.NumField() {
			if text := textOf(v.Field(i)); text != "" && v.Type().Field(i).Name != "Name" {
				if v.Type().Field(i).Name == "Username" {
					text = "(set)"
				}
				parts = append(parts, v.Type().Field(i).Tag.Get("toml")+" "+text)
			}
		}
		all = append(all, Value{Key: "relays." + r.Name, Text: strings.Join(parts, "; "), Place: places[relayTable(i)]})
	}
	return all
}

// outsideTables is the problem of a setting that follows the name of a table.
const outsideTables = "is a setting of its own; write it before the first table, because the lines after the name of " +
	"a table, such as [[relays]], belong to that table"

// unknownKey says that a key of a table is unknown, and which one may have been meant.
func (l *loader) unknownKey(key string, known []string) string {
	if l.find(key) != nil {
		return outsideTables
	}
	if near := spelling.Nearest(key, known); near != "" {
		return "is unknown; did you mean " + near + "?"
	}
	return "is unknown; use " + strings.Join(known, ", ")
}

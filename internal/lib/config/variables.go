package config

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"github.com/postrider/postrider/internal/lib/spelling"
)

const variablePrefix = "POSTRIDER_"

// otherVariables are variables that are no settings. Commands read them.
var otherVariables = []string{fileVariable, "POSTRIDER_API_KEY", "POSTRIDER_BACKUP_PASSPHRASE", "POSTRIDER_IMPORT_KEY",
	"POSTRIDER_PROMOTE_TO", "POSTRIDER_FROM_KEY"}

// otherPrefixes begin the variables of the tests and of the benchmark.
var otherPrefixes = []string{"POSTRIDER_TEST_", "POSTRIDER_BENCH_"}

// unknownVariables adds a problem for each variable that looks like a setting but is not one.
func (l *loader) unknownVariables() {
	known := slices.Clone(otherVariables)
	for _, s := range l.settings {
		if !s.isTables() {
			known = append(known, s.env())
		}
	}
	for _, r := range l.config.Relays {
		known = append(known, RelayVariable(r.Name))
	}
	for _, name := range slices.Sorted(maps.Keys(l.variables)) {
		v := l.variables[name]
		if !strings.HasPrefix(name, variablePrefix) || v.text == "" || slices.Contains(known, name) ||
			isServiceLink(name, v.text) || slices.ContainsFunc(otherPrefixes,
			func(prefix string) bool { return strings.HasPrefix(name, prefix) }) {
			continue
		}
		nearest := ""
		if key := spelling.Nearest(strings.TrimPrefix(name, variablePrefix), trimAll(known)); key != "" {
			nearest = "; did you mean " + variablePrefix + key + "?"
		}
		l.problemAt("", v.place, "there is no such setting%s", cmp.Or(nearest,
			"; docs/configuration.md lists all settings"))
	}
}

func trimAll(names []string) (all []string) {
	for _, name := range names {
		all = append(all, strings.TrimPrefix(name, variablePrefix))
	}
	return all
}

// The variables that Kubernetes sets in the containers of a pod for each Service of its namespace. A Service called
// postrider-smtp leads to POSTRIDER_SMTP_PORT=tcp://10.0.0.1:25, which is not the setting smtp_port.
var (
	linkHost = regexp.MustCompile(`_SERVICE_HOST$`)
	linkPort = regexp.MustCompile(`_SERVICE_PORT(_[A-Z0-9_]+)?$`)
	linkURL  = regexp.MustCompile(`_PORT(_[0-9]+_(TCP|UDP|SCTP))?$`)
	linkPart = regexp.MustCompile(`_PORT_[0-9]+_(TCP|UDP|SCTP)_(PROTO|PORT|ADDR)$`)
	digits   = regexp.MustCompile(`^[0-9]+$`)
	linkText = regexp.MustCompile(`^(tcp|udp|sctp)://`)
)

// isServiceLink reports whether a variable has the name and the value of one that Kubernetes sets for a Service.
func isServiceLink(name, value string) bool {
	switch {
	case linkHost.MatchString(name):
		_, err := netip.ParseAddr(value)
		return err == nil
	case linkPart.MatchString(name):
		return true
	case linkPort.MatchString(name):
		return digits.MatchString(value)
	case linkURL.MatchString(name):
		return linkText.MatchString(value)
	}
	return false
}

// systemVariables reads the system's file with variables. It adds the variables that the process lacks, and returns
// them.
func (l *loader) systemVariables(src Source) map[string]string {
	name := src.SystemVariables
	data, err := src.ReadFile(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case errors.Is(err, fs.ErrPermission):
		l.problem("read variables: %w; run this command as the user of the node, and let its group read the file: "+
			"chgrp postrider %s && chmod 640 %s", err, name, name)
		return nil
	case err != nil:
		l.problem("read variables: %w", err)
		return nil
	}
	further := map[string]string{}
	for v, err := range readVariables(string(data)) {
		if err != nil {
			l.problemAt("", fmt.Sprintf("%s:%d", name, v.line), "%w", err)
			continue
		}
		// If several lines set a variable, the last one counts, as for systemd.
		if _, again := further[v.name]; again || l.variables[v.name].text == "" {
			l.variables[v.name] = variable{v.text, fmt.Sprintf("%s in %s:%d", v.name, name, v.line)}
			further[v.name] = v.text
		}
	}
	return further
}

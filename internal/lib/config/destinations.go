package config

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/BurntSushi/toml"

	"github.com/postrider/postrider/internal/lib/spelling"
)

// destinationsMax is the maximum number of tables in the file of destinations.
const destinationsMax = 10_000

// Destination is a table of the file of destinations: what the operator has set for mail to some domains.
type Destination struct {
	Name string

	Domains   []string `toml:"domains" doc:"Recipients' domains: example.net, *.example.net for all its subdomains, or * for all domains without another table."`
	Hosts     []string `toml:"hosts" doc:"Mail hosts (MX) of domains, such as mx.example.net or *.google.com. The host with the best preference counts."`
	Providers []string `toml:"providers" doc:"Operators of the mail hosts: apple, barracuda, cisco, comcast, google, gmx, microsoft, mimecast, orange, proofpoint, t-online or yahoo."`

	Connections int             `toml:"connections" doc:"Maximum number of concurrent connections, of all nodes together. Empty: lane_concurrency."`
	Messages    int             `toml:"messages_per_connection" doc:"Maximum number of messages over one connection. Empty: 1000."`
	Rate        Rate            `toml:"rate" doc:"Maximum number of messages of all nodes together: 5/s, 100/m or 2000/h, spread evenly. Empty: lane_rate."`
	TLS         string          `toml:"tls" doc:"TLS towards the hosts: required (a valid certificate), opportunistic (if the host offers TLS) or none. A sending domain with enforced TLS needs a valid certificate in any case. With required, a relay needs a valid certificate too, like a relay for domains with enforced TLS. Empty: opportunistic."`
	Schedule    []time.Duration `toml:"retry_schedule" doc:"Waits between attempts, like the setting retry_schedule. Empty: that setting."`
	Lifetime    time.Duration   `toml:"retry_for" doc:"An email bounces if its next attempt would come later than this after it was due. The time for which the destination was paused does not count. Empty: retry_schedule decides."`
	Paused      bool            `toml:"paused" doc:"Hold all mail until the table changes."`
	Reason      string          `toml:"reason" doc:"Why the destination is paused. Senders see it in the explanation of a delivery."`
	Relay       string          `toml:"relay" doc:"Name of the relay that takes the mail."`
}

// minRate is the lowest rate limit in messages per second. The time until the next message must be a time.Duration, also
// for a node that has a thousandth of the rate.
const minRate = 1e-4

// Rate is a number of messages per second. In the file, it is a number with a unit, such as 100/m.
type Rate float64

// UnmarshalText reads a rate such as 5/s, 100/m or 2000/h.
func (r *Rate) UnmarshalText(text []byte) error {
	number, unit, _ := strings.Cut(strings.ReplaceAll(string(text), " ", ""), "/")
	seconds := map[string]float64{"s": 1, "m": 60, "h": 3600}[unit]
	n, err := strconv.ParseFloat(number, 64)
	if err != nil || seconds == 0 || !(n > 0 && n <= 1e6) {
		return fmt.Errorf("%q is not a rate: write it as 5/s, 100/m or 2000/h", text)
	}
	if n/seconds < minRate {
		return fmt.Errorf("%q is too low: the lowest rate is 0.36/h; use paused = true to hold all mail", text)
	}
	*r = Rate(n / seconds)
	return nil
}

// providers are the values of the key providers; package evidence knows their hosts.
var providers = []string{"apple", "barracuda", "cisco", "comcast", "google", "gmx", "microsoft", "mimecast", "orange",
	"proofpoint", "t-online", "yahoo"}

// ParseDestinations reads a file of destinations. The error joins all problems, each with its table. The parameter name
// is that of the file, and relays are the names of the relays.
func ParseDestinations(name string, data []byte, relays []string) ([]Destination, error) {
	values := map[string]any{}
	if err := toml.Unmarshal(data, &values); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	l := &loader{}
	if len(values) > destinationsMax {
		return nil, fmt.Errorf("%s: has %d tables; at most %d are allowed", name, len(values), destinationsMax)
	}
	used := map[string]string{} // by pattern: the table
	var all []Destination
	for _, key := range slices.Sorted(maps.Keys(values)) {
		where := fmt.Sprintf("%s: [%s]", name, key)
		table, ok := values[key].(map[string]any)
		if !ok {
			l.problem("%s: %s: is not a table; write a table such as [%s]", name, key, "google")
			continue
		}
		d := Destination{Name: key}
		before := len(l.problems)
		l.table(reflect.ValueOf(&d).Elem(), table, func(key, format string, args ...any) {
			l.problemAt("", where+"."+key, format, args...)
		})
		if len(l.problems) == before {
			l.checkDestination(&d, table, where, relays)
			l.checkPatterns(&d, where, used)
		}
		all = append(all, d)
	}
	return all, errors.Join(l.problems...)
}

// checkDestination checks the values of a table. A key that is left out has the zero value, which must not be written.
func (l *loader) checkDestination(d *Destination, table map[string]any, where string, relays []string) {
	given := func(key string) bool { _, ok := table[key]; return ok }
	if len(d.Domains)+len(d.Hosts)+len(d.Providers) == 0 {
		l.problem("%s: names no destination; set domains, hosts or providers", where)
	}
	for _, n := range []struct {
		key       string
		value, to int
	}{{"connections", d.Connections, 10_000}, {"messages_per_connection", d.Messages, 1_000_000}} {
		if n.value < 0 || n.value > n.to || n.value == 0 && given(n.key) {
			l.problem("%s.%s: is %d, must be between 1 and %d", where, n.key, n.value, n.to)
		}
	}
	if tls := []string{"", "opportunistic", "required", "none"}; !slices.Contains(tls, d.TLS) {
		l.problem("%s.tls: %q is not known; use one of %s", where, d.TLS, strings.Join(tls[1:], ", "))
	}
	if len(d.Schedule) > 100 {
		l.problem("%s.retry_schedule: has %d waits, must have at most 100", where, len(d.Schedule))
	}
	for _, wait := range d.Schedule {
		if wait < time.Second || wait > 7*24*time.Hour {
			l.problem("%s.retry_schedule: has a wait of %v; each must be between 1s and 168h", where, wait)
		}
	}
	if given("retry_for") && (d.Lifetime < time.Minute || d.Lifetime > 30*24*time.Hour) {
		l.problem("%s.retry_for: is %v, must be between 1m and 720h", where, d.Lifetime)
	}
	if len(d.Reason) > 500 {
		l.problem("%s.reason: has %d bytes, must have at most 500", where, len(d.Reason))
	}
	if d.Reason != "" && !d.Paused {
		l.problem("%s.reason: has no effect without paused = true", where)
	}
	if d.Relay != "" && !slices.Contains(relays, d.Relay) {
		what := "there is no relay with this name"
		if near := spelling.Nearest(d.Relay, relays); near != "" {
			what += "; did you mean " + near + "?"
		}
		l.problem("%s.relay: %q: %s", where, d.Relay, what)
	}
}

// checkPatterns checks the names of a table. A name may occur in one table only, because one table applies to an email.
func (l *loader) checkPatterns(d *Destination, where string, used map[string]string) {
	for _, list := range []struct {
		key string
		all []string
		ok  func(name string) bool
	}{{"domains", d.Domains, func(name string) bool { return name == "*" || isPattern(name) }},
		{"hosts", d.Hosts, isPattern},
		{"providers", d.Providers, func(name string) bool { return slices.Contains(providers, name) }}} {
		for i, name := range list.all {
			list.all[i] = hostName(name)
			name = list.all[i]
			if !list.ok(name) {
				hint := "write example.net or *.example.net"
				if list.key == "providers" {
					hint = "use one of " + strings.Join(providers, ", ")
				}
				l.problem("%s.%s: %q is not known; %s", where, list.key, name, hint)
				continue
			}
			if other, twice := used[list.key+" "+name]; twice {
				l.problem("%s.%s: %s is also in [%s]; a name may be in one table only", where, list.key, name, other)
			}
			used[list.key+" "+name] = d.Name
		}
	}
}

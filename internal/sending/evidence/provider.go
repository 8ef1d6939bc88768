package evidence

import "strings"

// Provider is the operator of a destination's mail hosts.
type Provider uint8

// The providers. The order must not change, because attempts store the number.
const (
	NotRecorded Provider = iota
	Other
	Google
	Microsoft
	Yahoo
	Apple
	Mimecast
	Proofpoint
	Barracuda
	Cisco
	GMX
	TOnline
	Orange
	Comcast
	Relay // the operator's relay, which hides the provider
)

// providers holds the names of the providers and the ends of their hosts' names.
var providers = map[Provider]struct {
	key, name string
	suffixes  []string
}{
	Other:      {"other", "The recipient's mail server", nil},
	Google:     {"google", "Google", []string{".google.com", ".googlemail.com"}},
	Microsoft:  {"microsoft", "Microsoft", []string{".protection.outlook.com", ".mx.microsoft", ".hotmail.com"}},
	Yahoo:      {"yahoo", "Yahoo", []string{".yahoodns.net"}},
	Apple:      {"apple", "Apple", []string{".icloud.com"}},
	Mimecast:   {"mimecast", "Mimecast", []string{".mimecast.com", ".mimecast.co.za", ".mimecast-offshore.com"}},
	Proofpoint: {"proofpoint", "Proofpoint", []string{".pphosted.com", ".ppe-hosted.com"}},
	Barracuda:  {"barracuda", "Barracuda", []string{".barracudanetworks.com"}},
	Cisco:      {"cisco", "Cisco", []string{".iphmx.com"}},
	GMX:        {"gmx", "GMX or WEB.DE", []string{".gmx.net", ".web.de", ".mail.com"}},
	TOnline:    {"t-online", "T-Online", []string{".t-online.de"}},
	Orange:     {"orange", "Orange", []string{".orange.fr", ".laposte.net"}},
	Comcast:    {"comcast", "Comcast", []string{".comcast.net"}},
	Relay:      {"relay", "The relay", nil},
}

// String returns the provider's name in the API, or "" if the provider was not recorded.
func (p Provider) String() string { return providers[p].key }

// Name returns the provider's name for a sentence.
func (p Provider) Name() string {
	if n := providers[p].name; n != "" {
		return n
	}
	return providers[Other].name
}

// Group returns the provider's name if it is one of the four largest, and "other" for all others. Metrics have few
// groups, so that they stay small.
func (p Provider) Group() string {
	switch p {
	case Google, Microsoft, Yahoo, Apple:
		return p.String()
	}
	return Other.String()
}

// ProviderByName returns the provider with a name in the API, or NotRecorded.
func ProviderByName(key string) Provider {
	for p, of := range providers {
		if of.key == key {
			return p
		}
	}
	return NotRecorded
}

// ProviderOf returns the provider of a destination with the given mail hosts. If the hosts do not all belong to one
// provider, the result is Other, so that a backup host does not name the provider.
func ProviderOf(hosts []string) Provider {
	found := NotRecorded
	for _, h := range hosts {
		p := providerOfHost(h)
		if found != NotRecorded && p != found {
			return Other
		}
		found = p
	}
	return found
}

func providerOfHost(host string) Provider {
	host = "." + strings.ToLower(strings.TrimSuffix(host, "."))
	for p, of := range providers {
		for _, s := range of.suffixes {
			if strings.HasSuffix(host, s) {
				return p
			}
		}
	}
	return Other
}

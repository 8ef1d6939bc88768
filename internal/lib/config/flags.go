package config

import "reflect"

// fileFlag is the flag that names the configuration file.
const fileFlag = "config"

// Flag describes a flag that sets a setting, or the flag --config.
type Flag struct {
	Name    string   // such as http-listen
	Kind    string   // type of its value, such as duration
	Doc     string   // sentences
	Default string   // as the command's help shows it, or "" if the help shows none
	IsBool  bool     // whether the flag may have no value, which means true
	Choices []string // the values, or the items of the list, if only these are allowed
}

// choices are the values of settings that allow only certain values, by key.
var choices = map[string][]string{
	"acme_challenges":        {"http-01", "tls-alpn-01"},
	"acme_dns_key_algorithm": {"hmac-sha1", "hmac-sha224", "hmac-sha256", "hmac-sha384", "hmac-sha512"},
	"log_format":             {"text", "json"},
	"log_level":              {"debug", "info", "warn", "error"},
	"partition_by":           {"day", "week", "month"},
	"relay_tls":              {"opportunistic", "required", "implicit", "none"},
	"roles":                  {"api", "delivery", "jobs", "submission", "receiving", "dns"},
	"transport":              {"direct", "relay", "capture"},
}

// Flags lists the flags that a command with these inputs accepts: first --config, then one for each setting that can be
// given as a flag, in the order of the manual.
func (src Source) Flags() []Flag {
	all := []Flag{{Name: fileFlag, Kind: "file", Doc: "File with settings.", Default: src.defaultFiles() +
		", if it exists"}}
	for _, s := range settings(&Config{}) {
		if !s.isTables() {
			all = append(all, Flag{Name: s.flag(), Kind: kind(s.value), Doc: s.doc, Default: src.defaultOf(s),
				IsBool: s.value.Kind() == reflect.Bool, Choices: choices[s.key]})
		}
	}
	return all
}

// defaultOf returns the default of a setting as the command's help shows it, or "" if the help shows none.
func (src Source) defaultOf(s *setting) string {
	if derived, ok := src.Derived[s.key]; ok {
		return derived
	}
	def, ok := src.Defaults[s.key]
	if !ok {
		return s.def
	}
	if def == "" && s.def != "" {
		return "empty"
	}
	return def
}

// defaultFiles names the files that are read if no file is named.
func (src Source) defaultFiles() string {
	if src.SystemFile == "" {
		return DefaultFile
	}
	return DefaultFile + ", or else " + src.SystemFile
}

package web

import (
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// missing matches the message of a fault for fields without a value.
var missing = regexp.MustCompile(`^Missing (.+) field\b`)

// named matches a name in a message of a fault.
var named = regexp.MustCompile("`([^`]*)`")

// InWords changes the message of a fault, which names fields as the API does, into one that stands beside the given
// field of a page; the field is "" for a message that stands above all. The labels of the page's fields replace their
// names.
func InWords(field, message string, labels map[string]string) string {
	if field != "" {
		name := "`" + field + "`"
		message = strings.Replace(message, "Missing "+name+" field.", "Enter a value.", 1)
		for _, kind := range []string{" field", " parameter"} {
			message = strings.Replace(message, "The "+name+kind+" must ", "This must ", 1)
			message = strings.Replace(message, "The "+name+kind+" ", "This field ", 1)
			for _, end := range []string{": ", ". "} {
				if rest, ok := strings.CutPrefix(message, "Invalid "+name+kind+end); ok {
					first, size := utf8.DecodeRuneInString(rest)
					message = string(unicode.ToUpper(first)) + rest[size:]
				}
			}
		}
	}
	message = missing.ReplaceAllString(message, "Enter $1")
	return named.ReplaceAllStringFunc(message, func(name string) string {
		name = strings.Trim(name, "`")
		if label := labels[name]; label != "" {
			return "“" + label + "”"
		}
		return name
	})
}

// labels returns the labels of the form's fields by their names.
func (f *Form) labels() map[string]string {
	all := map[string]string{}
	for _, x := range f.Fields {
		all[x.Name] = x.Label
	}
	return all
}

package mtasts

import (
	"errors"
	"fmt"
	"strings"
)

// ErrNoRecord means that a domain announces no policy.
var ErrNoRecord = errors.New("no MTA-STS record")

const version = "STSv1"

// Record returns the text of the TXT record that announces a policy. The id must have 1 to 32 letters and digits.
// ParseRecord returns the same id for this text.
func Record(id string) string { return "v=" + version + "; id=" + id + ";" }

// FindRecord returns the id in the MTA-STS record among the TXT records of one name. The id changes whenever the policy
// changes. Records that begin otherwise are ignored. The error is ErrNoRecord if no MTA-STS record is left. A domain
// with several MTA-STS records has no policy.
func FindRecord(records []string) (id string, err error) {
	var found []string
	for _, text := range records {
		if first, _, ok := strings.Cut(text, ";"); ok && strings.TrimRight(first, " \t") == "v="+version {
			found = append(found, text)
		}
	}
	switch len(found) {
	case 0:
		return "", ErrNoRecord
	case 1:
		return ParseRecord(found[0])
	}
	return "", fmt.Errorf("%d MTA-STS records instead of one", len(found))
}

// ParseRecord returns the id in an MTA-STS record such as "v=STSv1; id=20260101;" (RFC 8461 section 3.1).
func ParseRecord(text string) (id string, err error) {
	fields := strings.Split(text, ";")
	for i, field := range fields {
		field = trimField(field, i)
		if field == "" && i == len(fields)-1 && i > 0 {
			break // the record ends with a semicolon
		}
		name, value, ok := strings.Cut(field, "=")
		switch {
		case i == 0 && (name != "v" || value != version):
			return "", fmt.Errorf("the record does not begin with v=%s", version)
		case !ok || !isFieldName(name):
			return "", fmt.Errorf("the field %.80q of the record is not a name and a value", field)
		case name == "id" && !isID(value):
			return "", fmt.Errorf("the id %.80q of the record does not consist of 1 to 32 letters and digits", value)
		case !isRecordValue(value):
			return "", fmt.Errorf("the value of the record's field %s is invalid", name)
		case name == "id" && id == "":
			id = value
		}
	}
	if id == "" {
		return "", errors.New("the record has no id")
	}
	return id, nil
}

// trimField removes the white space that is allowed around the semicolons. A record must not begin with white space.
func trimField(field string, i int) string {
	if field = strings.TrimRight(field, " \t"); i > 0 {
		field = strings.TrimLeft(field, " \t")
	}
	return field
}

func isID(text string) bool {
	if text == "" || len(text) > 32 {
		return false
	}
	for i := range len(text) {
		if !isAlnum(text[i]) {
			return false
		}
	}
	return true
}

// isRecordValue reports whether text consists of visible ASCII characters other than "=" and ";".
func isRecordValue(text string) bool {
	for i := range len(text) {
		if c := text[i]; c <= ' ' || c >= 0x7f || c == '=' || c == ';' {
			return false
		}
	}
	return text != ""
}

package dmarcrpt

import "errors"

// element describes an element of a report. It has either child elements or a value.
type element struct {
	name     string
	children map[string]*element
	many     bool // whether the element may occur several times
	begin    func(*reader) error
	finish   func(*reader) error
	set      func(*reader, string) error
}

// feedback is the root element. It includes the elements that RFC 9990 removed.
var feedback = group("feedback",
	group("report_metadata",
		text("org_name", func(r *reader) *string { return &r.h.Org }),
		text("email", func(r *reader) *string { return &r.h.Email }),
		text("extra_contact_info", func(r *reader) *string { return &r.h.Contact }),
		leaf("report_id", func(r *reader, v string) error {
			if len(v) > maxText || r.long {
				return errors.New("the value is too long")
			}
			r.h.ID = v
			return nil
		}),
		group("date_range",
			leaf("begin", func(r *reader, v string) (err error) { r.h.Begin, err = moment(v); return err }),
			leaf("end", func(r *reader, v string) (err error) { r.h.End, err = moment(v); return err })),
		repeated(leaf("error", func(r *reader, v string) error {
			if len(r.h.Errors) < maxList && v != "" {
				r.h.Errors = append(r.h.Errors, label(v))
			}
			return nil
		})),
		text("generator", func(r *reader) *string { return &r.h.Generator })),
	group("policy_published",
		name("domain", func(r *reader) *string { return &r.h.Policy.Domain }),
		oneOf("discovery_method", discoveries, func(r *reader) *string { return &r.h.Policy.Discovery }),
		oneOf("p", policies, func(r *reader) *string { return &r.h.Policy.P }),
		oneOf("sp", policies, func(r *reader) *string { return &r.h.Policy.SP }),
		oneOf("np", policies, func(r *reader) *string { return &r.h.Policy.NP }),
		flag("adkim", "s", func(r *reader) *bool { return &r.h.Policy.StrictDKIM }),
		flag("aspf", "s", func(r *reader) *bool { return &r.h.Policy.StrictSPF }),
		flag("testing", "y", func(r *reader) *bool { return &r.h.Policy.Testing }),
		text("fo", func(r *reader) *string { return &r.h.Policy.FailureReports }),
		leaf("pct", func(r *reader, v string) error {
			if v == "" {
				return nil
			}
			n, err := number(v, 100)
			r.h.Policy.Percent = int(n)
			return err
		})),
	record).ending((*reader).finishReport)

var record = repeated(group("record",
	group("row",
		leaf("source_ip", func(r *reader, v string) (err error) { r.row.Source, err = address(v); return err }),
		leaf("count", func(r *reader, v string) (err error) { r.row.Count, err = number(v, maxCount); return err }),
		group("policy_evaluated",
			oneOf("disposition", dispositions, func(r *reader) *string { return &r.row.Disposition }),
			flag("dkim", "pass", func(r *reader) *bool { return &r.row.DKIM }),
			flag("spf", "pass", func(r *reader) *bool { return &r.row.SPF }),
			repeated(group("reason",
				leaf("type", func(r *reader, v string) error {
					if w := word(v, append(oldReasons, reasons...)); w != "" {
						last(&r.row.Reasons).Type = w
					}
					return nil
				}),
				text("comment", func(r *reader) *string { return &last(&r.row.Reasons).Comment }),
			)).beginning(func(r *reader) error { add(&r.row.Reasons, Reason{Type: "other"}); return nil }))),
	group("identifiers",
		name("header_from", func(r *reader) *string { return &r.row.HeaderFrom }),
		name("envelope_from", func(r *reader) *string { return &r.row.EnvelopeFrom }),
		name("envelope_to", func(r *reader) *string { return &r.row.EnvelopeTo })),
	group("auth_results",
		result("dkim", signatures, func(r *reader) *[]Result { return &r.row.Signatures }),
		result("spf", paths, func(r *reader) *[]Result { return &r.row.Paths })),
)).beginning(func(r *reader) error { r.row = Row{Count: -1}; return nil }).ending((*reader).finishRow)

// result describes a result of SPF or DKIM.
func result(kind string, vocabulary []string, list func(*reader) *[]Result) *element {
	return repeated(group(kind,
		name("domain", func(r *reader) *string { return &last(list(r)).Domain }),
		text("selector", func(r *reader) *string { return &last(list(r)).Selector }),
		oneOf("scope", scopes, func(r *reader) *string { return &last(list(r)).Scope }),
		oneOf("result", vocabulary, func(r *reader) *string { return &last(list(r)).Result }),
		text("human_result", func(r *reader) *string { return &last(list(r)).Detail }),
	)).beginning(func(r *reader) error { add(list(r), Result{}); return nil })
}

// add adds an item to a list. If the list is full, the item replaces the one before it.
func add[T any](list *[]T, item T) {
	if len(*list) == maxList {
		*list = (*list)[:maxList-1]
	}
	*list = append(*list, item)
}

func last[T any](list *[]T) *T { return &(*list)[len(*list)-1] }

func group(name string, children ...*element) *element {
	e := &element{name: name, children: make(map[string]*element, len(children))}
	for _, c := range children {
		e.children[c.name] = c
	}
	return e
}

func leaf(name string, set func(*reader, string) error) *element {
	return &element{name: name, set: set}
}

func repeated(e *element) *element { e.many = true; return e }

func (e *element) beginning(f func(*reader) error) *element { e.begin = f; return e }

func (e *element) ending(f func(*reader) error) *element { e.finish = f; return e }

// text describes an element with a text for people.
func text(name string, field func(*reader) *string) *element {
	return leaf(name, func(r *reader, v string) error { *field(r) = label(v); return nil })
}

// name describes an element with a domain.
func name(name string, field func(*reader) *string) *element {
	return leaf(name, func(r *reader, v string) error { *field(r) = domain(v); return nil })
}

// oneOf describes an element with a word of a vocabulary.
func oneOf(name string, vocabulary []string, field func(*reader) *string) *element {
	return leaf(name, func(r *reader, v string) error { *field(r) = word(v, vocabulary); return nil })
}

// flag describes an element that is true if it has a certain value.
func flag(name, value string, field func(*reader) *bool) *element {
	return leaf(name, func(r *reader, v string) error { *field(r) = word(v, []string{value}) != ""; return nil })
}

package config

import (
	"errors"
	"fmt"
	"strings"
)

// Problem is something wrong with the settings.
type Problem struct {
	Setting string // key; "" if the problem is not about one setting
	Place   string // where the value is: a file with its line, a variable or a flag; "" if no source has one
	cause   error
}

// NewProblem returns a problem of a setting that another package has found.
func NewProblem(setting, place string, cause error) *Problem { return &Problem{setting, place, cause} }

// Message says what is wrong and what to write instead. Secrets in URLs are hidden.
func (p *Problem) Message() string { return MaskURLs(p.cause.Error()) }

func (p *Problem) Error() string {
	switch {
	case p.Setting != "" && p.Place != "":
		return fmt.Sprintf("%s (%s): %s", p.Setting, p.Place, p.Message())
	case p.Setting != "" || p.Place != "":
		return fmt.Sprintf("%s%s: %s", p.Setting, p.Place, p.Message())
	}
	return p.Message()
}

func (p *Problem) Unwrap() error { return p.cause }

// Problems returns the problems that an error of Load joins, or nil if err is another error.
func Problems(err error) (all []*Problem) {
	joined, ok := errors.AsType[interface {
		error
		Unwrap() []error
	}](err)
	if !ok {
		return nil
	}
	for _, one := range joined.Unwrap() {
		p, ok := one.(*Problem)
		if !ok {
			return nil
		}
		all = append(all, p)
	}
	return all
}

// problem adds a problem that is not about one setting.
func (l *loader) problem(format string, args ...any) { l.problemAt("", "", format, args...) }

// problemAt adds a problem of a setting, or of a place.
func (l *loader) problemAt(setting, place, format string, args ...any) {
	l.problems = append(l.problems, &Problem{setting, place, fmt.Errorf(format, args...)})
}

// wrong adds a problem that names an invalid value and its source.
func (l *loader) wrong(key, format string, args ...any) {
	place := ""
	if s := l.find(key); s != nil && s.origin != "default" {
		place = s.origin
	}
	if region, ok := strings.CutPrefix(key, regionsKey+"."); ok {
		label, name, _ := strings.Cut(region, ".")
		place = l.placeIn(regionsKey+"."+label, name)
	}
	l.problemAt(key, place, format, args...)
}

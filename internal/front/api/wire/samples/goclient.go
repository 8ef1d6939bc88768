package samples

import (
	"fmt"
	"io"
	"reflect"
	"regexp"
	"strconv"
	"strings"

	"github.com/postrider/postrider/client"
)

// goClient prints a Go program that uses Postrider's package client. The types of the method's parameters decide how
// the values of the path, the query and the body are written.
func (p *printer) goClient() (string, error) {
	service, name, _ := strings.Cut(p.GoClient, ".")
	field, ok := reflect.TypeFor[client.Services]().FieldByName(service)
	if !ok {
		return "", fmt.Errorf("the package client has no service for %q", p.GoClient)
	}
	method, ok := field.Type.MethodByName(name)
	if !ok {
		return "", fmt.Errorf("the package client has no method %s", p.GoClient)
	}
	args, err := p.goArguments(method.Type)
	if err != nil {
		return "", fmt.Errorf("call the method %s: %w", p.GoClient, err)
	}
	call := "c." + p.GoClient + "(" + strings.Join(args, ", ") + ")"
	needs, use := "encoding/json", goResult
	switch out := method.Type.Out(0); {
	case out.Kind() == reflect.Func: // an iterator
		use = goRows
	case out == reflect.TypeFor[io.ReadCloser]():
		needs, use = "io", goDownload
	}
	return fmt.Sprintf(goClientProgram, needs, fmt.Sprintf(use, call)), nil
}

const (
	goClientProgram = `package main

import (
	"context"
	"%s"
	"log"
	"os"

	"github.com/postrider/postrider/client"
)

func main() {
	c, err := client.New(os.Getenv("URL"), os.Getenv("KEY"))
	if err != nil {
		log.Fatal(err)
	}

%s}`
	goResult = `	result, err := %s
	if err != nil {
		log.Fatal(err)
	}
	json.NewEncoder(os.Stdout).Encode(result)
`
	goRows = `	for row, err := range %s {
		if err != nil {
			log.Fatal(err)
		}
		json.NewEncoder(os.Stdout).Encode(row)
	}
`
	goDownload = `	file, err := %s
	if err != nil {
		log.Fatal(err)
	}
	defer file.Close()
	if _, err := io.Copy(os.Stdout, file); err != nil {
		log.Fatal(err)
	}
`
)

var pathParams = regexp.MustCompile(`\{(\w+)\}`)

// goArguments returns the arguments of a method of the package client: a context, the parameters of the path in their
// order, the parameters of the query, and the body.
func (p *printer) goArguments(method reflect.Type) ([]string, error) {
	args, inPath := []string{"context.Background()"}, pathParams.FindAllStringSubmatch(p.Path, -1)
	query, body := p.query.without("format"), p.body // the method itself sets the format
	for i := 2; i < method.NumIn()-1; i++ {          // after the receiver and the context, before the options
		t, v := method.In(i), &body
		switch {
		case t.Kind() == reflect.String:
			if len(inPath) == 0 {
				return nil, fmt.Errorf("the path %s has too few parameters", p.Path)
			}
			args, inPath = append(args, strconv.Quote(p.Params[inPath[0][1]])), inPath[1:]
			continue
		case t == reflect.TypeFor[client.Page](), strings.HasSuffix(t.Name(), "Params"):
			v = &query
		}
		text, err := clientValue(*v, t, 1, false)
		if err != nil {
			return nil, err
		}
		args, *v = append(args, text), value{}
	}
	if len(inPath)+len(query.items) > 0 || body.kind != 0 {
		return nil, fmt.Errorf("the method has no parameters for a part of %s %s", p.Method, p.Target())
	}
	return args, nil
}

// without returns an object without a field.
func (v *value) without(name string) value {
	rest := value{kind: v.kind}
	for i, key := range v.keys {
		if key != name {
			rest.keys, rest.items = append(rest.keys, key), append(rest.items, v.items[i])
		}
	}
	return rest
}

// clientValue prints a value as Go code of a type. If elided is true, a composite literal is printed without its type,
// as in a list.
func clientValue(v value, t reflect.Type, depth int, elided bool) (string, error) {
	if inner, ok := fieldType(t); ok {
		if v.kind == 'n' {
			return "client.Null[" + goTypeName(inner) + "]()", nil
		}
		text, err := clientValue(v, inner, depth, false)
		return "client.Set(" + text + ")", err
	}
	switch kind := t.Kind(); {
	case kind == reflect.Pointer && v.kind == 'n':
		return "nil", nil
	case kind == reflect.Pointer && t.Elem().Kind() == reflect.Struct:
		text, err := clientValue(v, t.Elem(), depth, false)
		return "&" + text, err
	case kind == reflect.Pointer:
		text, err := clientValue(v, t.Elem(), depth, false)
		return "new(" + text + ")", err
	case kind == reflect.Interface && v.kind == '{':
		return clientValue(v, reflect.TypeFor[map[string]any](), depth, false)
	case kind == reflect.Interface && v.kind == '[':
		return clientValue(v, reflect.TypeFor[[]any](), depth, false)
	case v.kind == '{' && (kind == reflect.Struct || kind == reflect.Map), v.kind == '[' && kind == reflect.Slice:
		return compositeLiteral(v, t, depth, elided)
	case kind == reflect.String && v.kind == '0': // a number in the query may be a text
		return strconv.Quote(v.text), nil
	case kind == reflect.Float64 && v.kind == '0' && !strings.ContainsAny(v.text, ".eE"):
		return v.text + ".0", nil
	case kind == reflect.Interface, kind == reflect.String && v.kind == '"', kind == reflect.Bool && (v.kind == 't' ||
		v.kind == 'f'), v.kind == '0' && (kind == reflect.Int || kind == reflect.Float64):
		return goText(v, depth, false), nil
	}
	return "", fmt.Errorf("a JSON value of the kind %q cannot be a %s", v.kind, goTypeName(t))
}

// compositeLiteral prints an object or a list as a struct, a map or a slice.
func compositeLiteral(v value, t reflect.Type, depth int, elided bool) (string, error) {
	parts := make([]string, len(v.items))
	multi := t.Kind() == reflect.Struct && depth <= 1 && len(v.items) > 1 ||
		v.kind == '[' && len(v.items) > 1 && v.items[0].kind == '{'
	for i, item := range v.items {
		name, of := "", t
		switch t.Kind() {
		case reflect.Struct:
			field, ok := structField(t, v.keys[i])
			if !ok {
				return "", fmt.Errorf("%s has no field for %s", goTypeName(t), v.keys[i])
			}
			name, of = field.Name+": ", field.Type
		case reflect.Map:
			name, of = strconv.Quote(v.keys[i])+": ", t.Elem()
		default:
			of = t.Elem()
		}
		text, err := clientValue(item, of, depth+1, t.Kind() != reflect.Struct)
		if err != nil {
			return "", err
		}
		parts[i] = name + text
		multi = multi || strings.Contains(text, "\n")
	}
	typ := goTypeName(t)
	if elided {
		typ = ""
	}
	if !multi {
		return typ + "{" + strings.Join(parts, ", ") + "}", nil
	}
	inner := "\n" + strings.Repeat("\t", depth+1)
	return typ + "{" + inner + strings.Join(align(parts, v.kind == '{'), ","+inner) + ",\n" +
		strings.Repeat("\t", depth) + "}", nil
}

// fieldType returns the type of the value of a [client.Field].
func fieldType(t reflect.Type) (reflect.Type, bool) {
	value, ok := t.MethodByName("Value")
	if !ok || t.PkgPath() != reflect.TypeFor[client.Page]().PkgPath() || !strings.HasPrefix(t.Name(), "Field[") {
		return nil, false
	}
	return value.Type.Out(0), true
}

// structField returns the field of a struct for a JSON field or a query parameter.
func structField(t reflect.Type, key string) (reflect.StructField, bool) {
	for f := range t.Fields() {
		tag, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if tag == key || tag == "" && strings.EqualFold(f.Name, strings.ReplaceAll(key, "_", "")) {
			return f, true
		}
	}
	return reflect.StructField{}, false
}

func goTypeName(t reflect.Type) string { return strings.ReplaceAll(t.String(), "interface {}", "any") }

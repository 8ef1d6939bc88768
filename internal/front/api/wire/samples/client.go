package samples

import (
	"fmt"
	"regexp"
	"strings"
)

var placeholder = regexp.MustCompile(`\$(\.?\w+)(?:\(([^)]*)\))?`)

var syntaxes = map[string]*syntax{"node": &nodeSyntax, "python": &pythonSyntax, "ruby": &rubySyntax,
	"php": &phpSyntax}

// program prints a program that uses the official client.
func (p *printer) program(language, call string) (string, error) {
	if language == "cli" {
		return p.command(call)
	}
	depth := 0
	if language == "go" {
		depth = 1
	}
	expr, err := p.expand(call, language, depth)
	if err != nil {
		return "", err
	}
	return strings.ReplaceAll(programs[language], "$call", expr), nil
}

// programs has the program around a call for each language. The base address is the only difference from a program for
// the public API.
var programs = map[string]string{
	"node": `import { Resend } from 'resend';

const resend = new Resend(process.env.KEY, { baseUrl: process.env.URL });

const { data, error } = await $call;
console.log(error ?? data);`,
	"go": `package main

import (
	"fmt"
	"log"
	"net/url"
	"os"

	"github.com/resend/resend-go/v3"
)

func main() {
	client := resend.NewClient(os.Getenv("KEY"))
	client.BaseURL, _ = url.Parse(os.Getenv("URL") + "/")

	result, err := $call
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%+v\n", result)
}`,
	"python": `import os

import resend

resend.api_url = os.environ["URL"]
resend.api_key = os.environ["KEY"]

result = $call
print(result)`,
	"ruby": `# The gem reads the address when it is loaded. It must end in a slash.
ENV["RESEND_BASE_URL"] = ENV["URL"] + "/"
require "resend"

Resend.api_key = ENV["KEY"]

puts $call`,
	"php": `<?php

require 'vendor/autoload.php';

putenv('RESEND_BASE_URL=' . getenv('URL'));
$resend = Resend::client(getenv('KEY'));

$result = $call;
echo json_encode($result, JSON_PRETTY_PRINT), PHP_EOL;`,
}

// expand replaces the placeholders of a call.
func (p *printer) expand(call, language string, depth int) (string, error) {
	var failed error
	text := placeholder.ReplaceAllStringFunc(call, func(found string) string {
		m := placeholder.FindStringSubmatch(found)
		v, err := p.lookUp(m[1], m[2])
		if language == "php" && m[1] == "resend" {
			return found
		}
		if err != nil {
			failed = err
			return found
		}
		if language == "go" {
			return goText(v, depth, m[1] == "body" || m[1] == "object")
		}
		return syntaxes[language].text(v, depth)
	})
	return text, failed
}

// lookUp returns the value for a placeholder. The argument further names additional fields, as "id=domain_id".
func (p *printer) lookUp(name, further string) (value, error) {
	var v value
	switch {
	case name == "body":
		v = p.body
	case name == "query":
		v = p.query
	case name == "object":
		v = value{kind: '{'}
	case strings.HasPrefix(name, "."):
		field, ok := p.body.field(name[1:])
		if !ok {
			return value{}, fmt.Errorf("the body has no field %s", name[1:])
		}
		return field, nil
	default:
		text, ok := p.Params[name]
		if !ok {
			return value{}, fmt.Errorf("the path has no parameter %s", name)
		}
		return value{kind: '"', text: text}, nil
	}
	if further == "" {
		return v, nil
	}
	wider := value{kind: '{'}
	for pair := range strings.SplitSeq(further, ",") {
		key, of, _ := strings.Cut(strings.TrimSpace(pair), "=")
		item, err := p.lookUp(of, "")
		if err != nil {
			return value{}, err
		}
		wider.keys, wider.items = append(wider.keys, key), append(wider.items, item)
	}
	wider.keys, wider.items = append(wider.keys, v.keys...), append(wider.items, v.items...)
	return wider, nil
}

// command prints a command of the official CLI.
func (p *printer) command(call string) (string, error) {
	var failed error
	text := placeholder.ReplaceAllStringFunc(call, func(found string) string {
		m := placeholder.FindStringSubmatch(found)
		v, err := p.lookUp(m[1], m[2])
		if err != nil {
			failed = err
		}
		switch v.kind {
		case '"', '0':
			return shellQuote(v.text)
		case '[':
			if len(v.items) > 0 && v.items[0].kind == '"' {
				words := make([]string, len(v.items))
				for i, item := range v.items {
					words[i] = shellQuote(item.text)
				}
				return strings.Join(words, " ")
			}
		}
		compact := jsonSyntax
		compact.rename = m[1] == ".steps" // the CLI gives them to the client for Node.js, which renames their fields
		return shellQuote(compact.line(v))
	})
	if len(text) > 80 {
		text = strings.ReplaceAll(text, " --", " \\\n  --")
	}
	return "export RESEND_BASE_URL=$URL RESEND_API_KEY=$KEY\n" + text, failed
}

// line prints a value on one line.
func (s *syntax) line(v value) string {
	lines := strings.Split(s.text(v, 0), "\n")
	for i, l := range lines {
		lines[i] = strings.TrimSpace(l)
	}
	return strings.Join(lines, "")
}

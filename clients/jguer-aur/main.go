// Jguer/aur v1.2.3, the library of yay, and its command aur-cli, against a running server.
//
// cases.json (what to expect) -> the library's and the command's own requests -> a check of each answer.
//
//	jguer-aur http://127.0.0.1:8080 clients/cases.json path/to/aur-cli
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"reflect"
	"sort"
	"strings"

	"github.com/Jguer/aur"
	"github.com/Jguer/aur/rpc"
)

// searchCase is one search: either the names expected, or the error.
type searchCase struct {
	By    string   `json:"by"`
	Arg   string   `json:"arg"`
	Names []string `json:"names"`
	Error string   `json:"error"`
}

// What clients/expect.py wrote.
type cases struct {
	Search []searchCase `json:"search"`
	Info   []aur.Pkg    `json:"info"`
}

// Every field the library can search by; None is how it asks for the default.
var fields = []aur.By{
	aur.Name, aur.NameDesc, aur.Maintainer, aur.Submitter, aur.Depends, aur.MakeDepends, aur.OptDepends,
	aur.CheckDepends, aur.None, aur.Provides, aur.Conflicts, aur.Replaces, aur.Keywords, aur.Groups, aur.CoMaintainers,
}

func main() {
	if len(os.Args) != 4 {
		fail("expected three arguments: the base URL, cases.json and aur-cli; found %d", len(os.Args)-1)
	}
	url, cli := os.Args[1], os.Args[3]
	text, err := os.ReadFile(os.Args[2])
	must(err)
	var all cases
	must(json.Unmarshal(text, &all))
	client, err := rpc.NewClient(rpc.WithBaseURL(url))
	must(err)

	for _, by := range fields {
		count := 0
		for _, one := range all.Search {
			if one.By == by.String() || by == aur.None && one.By == aur.NameDesc.String() {
				checkSearch(client, by, one)
				count++
			}
		}
		if count == 0 {
			fail("cases.json has no search by `%s`", by)
		}
	}
	checkInfo(client, all.Info)
	checkCommand(cli, url, all)
	fmt.Printf("Jguer/aur: %d searches by %d fields, info of %d names, aur-cli\n", len(all.Search), len(fields), len(all.Info))
}

// checkSearch asks as yay does: below 500 hits the library asks again for all of them by info, in batches of 125.
func checkSearch(client *rpc.Client, by aur.By, one searchCase) {
	what := fmt.Sprintf("search by `%s` for `%s`", by, one.Arg)
	found, err := client.Search(context.Background(), one.Arg, by)
	if one.Error != "" {
		if err == nil || !strings.HasSuffix(err.Error(), one.Error) {
			fail("%s: error %v, expected `%s`", what, err, one.Error)
		}
		return
	}
	must(err)
	checkNames(what, found, one.Names)
	found, err = client.Get(context.Background(), &aur.Query{Needles: []string{one.Arg}, By: by, Contains: true})
	must(err)
	checkNames(what+", then by info", found, one.Names)
}

// checkInfo compares every field the library knows with the dump's.
func checkInfo(client *rpc.Client, expected []aur.Pkg) {
	asked := []string{"zzqqxx-nothing"}
	for i := range expected {
		asked = append(asked, expected[i].Name)
	}
	found, err := client.Get(context.Background(), &aur.Query{Needles: asked})
	must(err)
	checkPackages("info", found, expected)
}

// checkCommand runs aur-cli: a search and an info as JSON, an info for people, and a search that is refused.
func checkCommand(cli, url string, all cases) {
	for _, one := range all.Search {
		// aur-cli knows no `submitter`, and prints nothing but the error of a search that fails.
		if one.By == aur.Submitter.String() || one.Arg == "" {
			continue
		}
		output, err := run(cli, "-url", url, "-json", "-by", one.By, "search", one.Arg)
		if one.Error != "" {
			if err == nil || !strings.Contains(output, one.Error) {
				fail("aur-cli search %s: error %v and `%s`, expected `%s`", one.Arg, err, output, one.Error)
			}
			continue
		}
		checkNames("aur-cli search "+one.Arg, parse(output, err), one.Names)
	}
	few := all.Info[:3]
	names := []string{few[0].Name, few[1].Name, few[2].Name}
	output, err := run(cli, append([]string{"-url", url, "-json", "info"}, names...)...)
	checkPackages("aur-cli info", parse(output, err), few)
	output, err = run(cli, append([]string{"-url", url, "-verbose", "info"}, names...)...)
	must(err)
	for i := range few {
		for _, text := range []string{few[i].Name, few[i].Version, few[i].PackageBase, few[i].URLPath} {
			if !strings.Contains(output, text) {
				fail("aur-cli -verbose info does not show `%s`:\n%s", text, output)
			}
		}
	}
}

// run gives what the command printed, without the requests that it logs to its standard output.
func run(cli string, arguments ...string) (string, error) {
	raw, err := exec.Command(cli, arguments...).CombinedOutput()
	var lines []string
	for _, line := range strings.Split(string(raw), "\n") {
		if !strings.HasPrefix(line, "[DEBUG]") {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "\n"), err
}

func parse(output string, err error) []aur.Pkg {
	if err != nil {
		fail("aur-cli: %v: %s", err, output)
	}
	var found []aur.Pkg
	must(json.Unmarshal([]byte(output), &found))
	return found
}

func checkNames(what string, found []aur.Pkg, expected []string) {
	names := []string{}
	for i := range found {
		names = append(names, found[i].Name)
	}
	// What came from the cache of the library stands before what was asked for.
	sort.Strings(names)
	if !reflect.DeepEqual(names, append([]string{}, expected...)) {
		fail("%s: %d names %.300v, expected %d: %.300v", what, len(names), names, len(expected), expected)
	}
}

func checkPackages(what string, found, expected []aur.Pkg) {
	if len(found) != len(expected) {
		fail("%s: %d packages, expected %d", what, len(found), len(expected))
	}
	byName := map[string]aur.Pkg{}
	for i := range found {
		byName[found[i].Name] = found[i]
	}
	for i := range expected {
		if !reflect.DeepEqual(byName[expected[i].Name], expected[i]) {
			fail("%s: %+v\n  expected %+v", what, byName[expected[i].Name], expected[i])
		}
	}
}

func must(err error) {
	if err != nil {
		fail("%v", err)
	}
}

func fail(format string, values ...any) {
	fmt.Fprintf(os.Stderr, "FAILED: "+format+"\n", values...)
	os.Exit(1)
}

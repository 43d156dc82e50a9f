%% @doc Cookies for responses (RFC 6265 and its revision). {@link weir_http_request:cookies/1} returns those of
%% requests.
%%
%% ```
%% {reply, 200, [weir_http_cookie:set(<<"__Host-session">>, Token, #{secure => true, max_age => 3600})], Body}
%% '''
-module(weir_http_cookie).

-export([set/3]).
-export([delete/2]).
-export([is_name/1]).

-export_type([options/0]).

-type options() :: #{
    max_age => non_neg_integer(),
    domain => binary(),
    path => binary(),
    secure => boolean(),
    http_only => boolean(),
    same_site => strict | lax | none,
    partitioned => boolean()
}.
%% `max_age' is in seconds; without it the cookie lasts until the browser is closed. Defaults: `path' is `/',
%% `http_only' (hidden from scripts) is true, `same_site' is `lax', `secure' is false. Set `secure' wherever browsers
%% use TLS.

-define(DEFAULTS, #{path => <<"/">>, secure => false, http_only => true, same_site => lax, partitioned => false}).

%% Browsers drop longer cookies.
-define(MOST, 4096).

%% @doc Returns a field that sets a cookie. Fails with `{bad_option, Name, Value, Allowed}' for what browsers would
%% drop:
%% <ul>
%% <li>a name or value with forbidden bytes (encode them, for instance with base64), or more than 4096 bytes
%% together</li>
%% <li>`same_site => none' or `partitioned' without `secure'</li>
%% <li>a name that begins with `__Secure-' without `secure'</li>
%% <li>a name that begins with `__Host-' without `secure', with a domain, or with a path that is not `/'</li>
%% </ul>
-spec set(Name :: binary(), Value :: binary(), options()) -> {binary(), iodata()}.
set(Name, Value, Options) ->
    is_name(Name) orelse bad(name, Name, "a binary of token characters: visible ASCII without separators"),
    is_binary(Value) andalso all(fun is_octet/1, Value) orelse
        bad(value, Value, "a binary of visible ASCII without quote, comma, semicolon and backslash"),
    byte_size(Name) + byte_size(Value) =< ?MOST orelse bad(value, Value, "at most 4096 bytes together with the name"),
    maps:foreach(fun check/2, Options),
    Given = maps:merge(?DEFAULTS, Options),
    ok = together(Name, Given),
    {<<"set-cookie">>, [
        Name, $=, Value | [attribute(Key, Option) || {Key, Option} <- lists:sort(maps:to_list(Given))]
    ]}.

%% @doc Returns a field that deletes a cookie. Pass the name, domain and path with which it was set, and `secure' if
%% its name has a prefix.
-spec delete(Name :: binary(), options()) -> {binary(), iodata()}.
delete(Name, Options) -> set(Name, <<>>, Options#{max_age => 0}).

%% @doc Whether a binary can be the name of a cookie: a token (RFC 6265, 4.1.1).
-spec is_name(term()) -> boolean().
is_name(Name) -> is_binary(Name) andalso Name =/= <<>> andalso all(fun is_token/1, Name).

-spec bad(atom(), term(), string()) -> no_return().
bad(Name, Value, Allowed) -> error({bad_option, Name, Value, Allowed}).

all(Is, Text) -> lists:all(Is, binary_to_list(Text)).

is_token(Byte) -> Byte > $\s andalso Byte < 16#7f andalso not lists:member(Byte, "()<>@,;:\\\"/[]?={}").

is_octet(Byte) -> Byte > $\s andalso Byte < 16#7f andalso not lists:member(Byte, "\",;\\").

check(max_age, Seconds) when is_integer(Seconds), Seconds >= 0 -> ok;
check(max_age, Value) ->
    bad(max_age, Value, "seconds from 0 on");
check(Key, Value) when Key =:= secure; Key =:= http_only; Key =:= partitioned ->
    is_boolean(Value) orelse bad(Key, Value, "true or false");
check(same_site, Value) ->
    lists:member(Value, [strict, lax, none]) orelse bad(same_site, Value, "strict, lax or none");
check(domain, Value) ->
    is_binary(Value) andalso re:run(Value, "^[A-Za-z0-9.-]+$", [dollar_endonly]) =/= nomatch orelse
        bad(domain, Value, "a host name");
check(path, <<"/", _/binary>> = Path) ->
    all(fun(Byte) -> Byte >= $\s andalso Byte < 16#7f andalso Byte =/= $; end, Path) orelse
        bad(path, Path, "visible ASCII without semicolons");
check(path, Value) ->
    bad(path, Value, "a path that begins with a slash");
check(Key, Value) ->
    bad(Key, Value, "unknown option; valid: max_age, domain, path, secure, http_only, same_site, partitioned").

together(<<"__Host-", _/binary>> = Name, Options) ->
    case Options of
        #{secure := true, path := <<"/">>} when not is_map_key(domain, Options) -> ok;
        _ -> bad(name, Name, "secure => true, path => <<\"/\">> and no domain with a name that begins with __Host-")
    end;
together(<<"__Secure-", _/binary>> = Name, #{secure := false}) ->
    bad(name, Name, "secure => true with a name that begins with __Secure-");
together(_Name, #{same_site := none, secure := false}) ->
    bad(same_site, none, "secure => true together with same_site => none");
together(_Name, #{partitioned := true, secure := false}) ->
    bad(partitioned, true, "secure => true together with partitioned");
together(_Name, _Options) ->
    ok.

attribute(max_age, Seconds) -> ["; Max-Age=", integer_to_binary(Seconds)];
attribute(domain, Domain) -> ["; Domain=", Domain];
attribute(path, Path) -> ["; Path=", Path];
attribute(secure, true) -> "; Secure";
attribute(http_only, true) -> "; HttpOnly";
attribute(partitioned, true) -> "; Partitioned";
attribute(same_site, strict) -> "; SameSite=Strict";
attribute(same_site, lax) -> "; SameSite=Lax";
attribute(same_site, none) -> "; SameSite=None";
attribute(_Key, false) -> [].

%% @private
%% @doc Checks of values in the configuration file of a push server. A check returns the decoded value, or what is
%% allowed.
-module(weir_pubsub_file_value).

-export([integer/2]).
-export([milliseconds/1]).
-export([infinite/1]).
-export([choice/1]).
-export([choices/1]).
-export([text/0]).
-export([boolean/0]).
-export([ip/0]).
-export([origins/0]).
-export([url/0]).
-export([host/0]).
-export([prefix/0]).
-export([cookie/0]).
-export([file_in/1]).
-export([secret_in/1]).
-export([sources/2]).
-export([certificates_in/1]).

-export_type([check/1, result/1]).

-type result(Value) :: {ok, Value} | {error, Allowed :: iodata()}.

-type check(Value) :: fun((weir_toml:value()) -> result(Value)).

%% @doc An integer in a range.
-spec integer(integer(), integer()) -> check(integer()).
integer(Min, Max) ->
    fun
        (Value) when is_integer(Value), Value >= Min, Value =< Max -> {ok, Value};
        (_) -> {error, io_lib:format("an integer from ~b to ~b", [Min, Max])}
    end.

%% @doc A time in milliseconds.
-spec milliseconds(non_neg_integer()) -> check(non_neg_integer()).
milliseconds(Min) ->
    fun
        (Value) when is_integer(Value), Value >= Min, Value < 1 bsl 31 -> {ok, Value};
        (_) -> {error, io_lib:format("milliseconds from ~b on", [Min])}
    end.

%% @doc What another check accepts, or `"infinity"'.
-spec infinite(check(Value)) -> check(Value | infinity).
infinite(Check) ->
    fun
        (<<"infinity">>) -> {ok, infinity};
        (Value) ->
            case Check(Value) of
                {ok, _} = Ok -> Ok;
                {error, Allowed} -> {error, [Allowed, ", or \"infinity\""]}
            end
    end.

%% @doc One of the given words.
-spec choice([atom(), ...]) -> check(atom()).
choice(Choices) ->
    fun(Value) ->
        case [Choice || Choice <- Choices, atom_to_binary(Choice) =:= Value] of
            [Choice] -> {ok, Choice};
            [] -> {error, ["one of ", quoted(Choices)]}
        end
    end.

%% @doc An array of one or more of the given words.
-spec choices([atom(), ...]) -> check([atom()]).
choices(Choices) ->
    One = choice(Choices),
    fun(Values) ->
        Chosen = case is_list(Values) of true -> [One(Value) || Value <- Values]; false -> [] end,
        case Chosen =/= [] andalso lists:all(fun(Result) -> element(1, Result) =:= ok end, Chosen) of
            true -> {ok, [Choice || {ok, Choice} <- Chosen]};
            false -> {error, ["an array of ", quoted(Choices)]}
        end
    end.

quoted(Choices) -> lists:join(", ", [["\"", atom_to_binary(Choice), "\""] || Choice <- Choices]).

%% @doc A string that is not empty.
-spec text() -> check(binary()).
text() -> fun text/1.

text(Text) when is_binary(Text), Text =/= <<>> -> {ok, Text};
text(_) -> {error, "a string that is not empty"}.

%% @doc A boolean.
-spec boolean() -> check(boolean()).
boolean() -> fun boolean/1.

boolean(Value) when is_boolean(Value) -> {ok, Value};
boolean(_) -> {error, "true or false"}.

%% @doc An IP address.
-spec ip() -> check(inet:ip_address()).
ip() -> fun ip/1.

ip(Text) when is_binary(Text) ->
    case inet:parse_strict_address(binary_to_list(Text)) of
        {ok, Ip} -> {ok, Ip};
        {error, einval} -> ip(none)
    end;
ip(_) ->
    {error, "an address, such as \"127.0.0.1\""}.

%% @doc The origins of web pages that may use the server.
-spec origins() -> check(any | [binary()]).
origins() -> fun origins/1.

origins(<<"any">>) -> {ok, any};
origins(Origins) when is_list(Origins), Origins =/= [] ->
    case lists:all(fun is_origin/1, Origins) of
        true -> {ok, Origins};
        false -> origins(none)
    end;
origins(_) -> {error, "\"any\", or an array of origins as browsers send them: \"https://example.org\""}.

is_origin(Origin) ->
    is_binary(Origin) andalso re:run(Origin, "^https?://[a-z0-9.:\\[\\]-]+$", [{capture, none}]) =:= match.

%% @doc The URL of an HTTP or HTTPS server.
-spec url() -> check({http | https, #{host := string(), port := inet:port_number(), target := binary()}}).
url() -> fun url/1.

url(Text) when is_binary(Text) ->
    case uri_string:parse(Text) of
        #{userinfo := _} -> {error, "a url without a user: requests have the client's own Authorization field"};
        #{fragment := _} -> {error, "a url without #: a fragment is never sent to a server"};
        #{scheme := Scheme, host := Host} = Uri when Host =/= <<>> -> url(string:lowercase(Scheme), Host, Uri);
        _ -> url(none)
    end;
url(_) ->
    {error, "a url such as \"http://127.0.0.1:9000/may\" or \"https://may.example.org/\""}.

url(<<"http">>, Host, Uri) -> url(http, 80, Host, Uri);
url(<<"https">>, Host, Uri) -> url(https, 443, Host, Uri);
url(_Scheme, _Host, _Uri) -> {error, "a url that begins with http:// or https://"}.

url(Scheme, Default, Host, Uri) ->
    case maps:get(port, Uri, Default) of
        Given when Given =:= undefined; is_integer(Given), Given > 0, Given < 65536 ->
            Path = case Uri of #{path := <<>>} -> <<"/">>; #{path := Some} -> Some end,
            Query = case Uri of #{query := Asked} -> [$?, Asked]; #{} -> [] end,
            Port = case Given of undefined -> Default; _ -> Given end,
            {ok, {Scheme, #{host => binary_to_list(Host), port => Port, target => iolist_to_binary([Path, Query])}}};
        _ ->
            {error, "a url with a port from 1 to 65535"}
    end.

%% @doc The name or address of a host.
-spec host() -> check(string()).
host() ->
    fun(Value) ->
        case name(Value) of
            {ok, Host} -> {ok, binary_to_list(Host)};
            error -> {error, "the name or address of a host"}
        end
    end.

%% The operating system would cut the name at a zero byte.
name(Value) ->
    case is_binary(Value) andalso Value =/= <<>> andalso binary:match(Value, <<0>>) of
        nomatch -> {ok, Value};
        _ -> error
    end.

%% @doc The prefix of Redis keys. It has no braces, which would mark the part of a key that selects the node of a
%% cluster.
-spec prefix() -> check(binary()).
prefix() ->
    fun(Value) ->
        case is_binary(Value) andalso Value =/= <<>> andalso binary:match(Value, [<<"{">>, <<"}">>]) of
            nomatch -> {ok, Value};
            _ -> {error, "a string without braces"}
        end
    end.

%% @doc The name of a cookie.
-spec cookie() -> check(binary()).
cookie() ->
    fun(Value) ->
        case weir_http_cookie:is_name(Value) of
            true -> {ok, Value};
            false -> {error, "the name of a cookie: letters, digits and !#$%&'*+-.^_`|~"}
        end
    end.

%% @doc The name of a file, relative to a directory.
-spec file_in(file:filename_all()) -> check(file:filename_all()).
file_in(Directory) ->
    fun(Value) ->
        case name(Value) of
            {ok, File} -> {ok, filename:join(Directory, File)};
            error -> {error, "the name of a file"}
        end
    end.

%% @doc The content of a file, without white space around it.
-spec secret_in(file:filename_all()) -> check(binary()).
secret_in(Directory) ->
    Name = file_in(Directory),
    fun(Value) ->
        case Name(Value) of
            {ok, File} ->
                case file:read_file(File) of
                    {ok, Text} -> {ok, string:trim(Text)};
                    {error, Reason} -> {error, [File, ": cannot be read: ", file:format_error(Reason)]}
                end;
            {error, _} = Error ->
                Error
        end
    end.

%% @doc Files with keys.
-spec sources(secret | public_key | jwks, file:filename_all()) -> check([weir_pubsub_keys:source()]).
sources(Kind, Directory) ->
    One = file_in(Directory),
    fun(Values) ->
        Files = case is_list(Values) of true -> [One(Value) || Value <- Values]; false -> [error] end,
        case lists:all(fun(File) -> is_tuple(File) andalso element(1, File) =:= ok end, Files) of
            true -> {ok, [{Kind, File} || {ok, File} <- Files]};
            false -> {error, "an array of names of files"}
        end
    end.

%% @doc The certificates in a PEM file.
-spec certificates_in(file:filename_all()) -> check([public_key:der_encoded(), ...]).
certificates_in(Directory) ->
    Text = secret_in(Directory),
    fun(Value) ->
        case Text(Value) of
            {ok, Pem} ->
                case [Der || {'Certificate', Der, not_encrypted} <- weir_pubsub_pem:entries(Pem)] of
                    [] -> {error, [Value, ": contains no certificate in PEM"]};
                    Certificates -> {ok, Certificates}
                end;
            {error, _} = Error ->
                Error
        end
    end.
